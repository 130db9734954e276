"""A rank of run(): what ``launch`` starts."""
import os
import pathlib
import pickle
import sys


def main(folder: str) -> None:
    sys.path[:], call = pickle.loads(pathlib.Path(folder, "call").read_bytes())
    func, args, kwargs = pickle.loads(call)
    result = func(*args, **kwargs)
    pathlib.Path(folder, f"result.{os.environ['RANK']}").write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
