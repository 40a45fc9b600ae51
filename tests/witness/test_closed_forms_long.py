# RUN: np=1 timeout=1800 tags=long
"""test_closed_forms over thousands of configurations."""
import os
import runpy

here = os.path.dirname(__file__)

os.environ.update(ECH_CASES="4000", ECH_SEED="7")
runpy.run_path(os.path.join(here, "test_closed_forms.py"), run_name="__main__")
