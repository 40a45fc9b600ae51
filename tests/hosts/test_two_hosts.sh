# RUN: np=1 timeout=120 tags=fast,mpi
# Layouts on two hosts of two ranks (tests/hosts/run says how they are played).
set -e
cd "$(dirname "$0")"
./run layout.tp=2 layout.sequence_parallel=true layout.zero.stage=3                 # tp within a host
./run layout.tp=2 layout.order=dp-cp-ep-tp-pp layout.zero.stage=1                   # tp across them
./run layout.dp=4 layout.zero.stage=3 layout.zero.group=2 layout.zero.reduce=each   # replicas on hosts
