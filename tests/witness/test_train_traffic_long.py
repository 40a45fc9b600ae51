# RUN: np=1 timeout=1200 tags=long,mpi
"""test_train_traffic over its whole grid."""
import os
import runpy

here = os.path.dirname(__file__)

os.environ["ECH_LONG"] = "1"
runpy.run_path(os.path.join(here, "test_train_traffic.py"), run_name="__main__")
