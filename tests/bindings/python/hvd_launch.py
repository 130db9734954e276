"""run() of functions on ranks, from a process that is no rank."""
import hvd_functions
import kolo.torch as hvd


def own():
    return 1


def main():
    assert hvd.run(hvd_functions.total, args=([1, 2],), kwargs={"factor": 10}, np=2) == [(0, [20, 40]), (1, [20, 40])]
    for function, kind, words in ((hvd_functions.fail, RuntimeError, "exit status 1"), (own, ValueError, "__main__")):
        try:
            hvd.run(function, np=2)
        except kind as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"run({function}) has not failed")
    print("run() is done", flush=True)


main()
