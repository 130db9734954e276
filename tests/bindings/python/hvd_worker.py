"""A rank of horovod_test: the checks of parts, each part in a world of its own.

  kolo-run -np 2 python hvd_worker.py rows                  # all of hvd_rows.py
  kolo-run -np 2 python hvd_worker.py rows:check_alltoall   # one of them
"""
import importlib
import sys

import hvd_rank

for name in sys.argv[1:]:
    part, _, wanted = name.partition(":")
    checks = vars(importlib.import_module(f"hvd_{part}"))
    hvd_rank.run(part, [checks[wanted]] if wanted else
                 [check for key, check in checks.items() if key.startswith("check_")])
