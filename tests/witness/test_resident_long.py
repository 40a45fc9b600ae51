# RUN: np=1 timeout=600 tags=long,mpi
"""test_resident with the whole vocabulary of GPT-2, and on several ranks."""
import os
import runpy

here = os.path.dirname(__file__)

os.environ["ECH_LONG"] = "1"
runpy.run_path(os.path.join(here, "test_resident.py"), run_name="__main__")
