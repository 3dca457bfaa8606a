"""Changes the agent's program, which process 1 runs."""

import os
import shutil

from attack import attempt, report


def append(path):
    with open(path, "ab") as f:
        f.write(b"x")


def truncate(path):
    os.truncate(path, 0)


attempt("write", append, "/.bothy/guest")
attempt("truncate", truncate, "/.bothy/guest")
attempt("remove", os.remove, "/.bothy/guest")
attempt("rename over", lambda: (open("/.bothy/new", "w"), os.rename("/.bothy/new", "/.bothy/guest")))
attempt("chmod", os.chmod, "/.bothy/guest", 0o777)
attempt("chown", os.chown, "/.bothy/guest", 1000, 1000)
attempt("hard link away", os.link, "/.bothy/guest", "/tmp/guest")
attempt("rename the folder", os.rename, "/.bothy", "/bothy")
attempt("remove the folder", shutil.rmtree, "/.bothy")
attempt("write through /proc/1/exe", append, "/proc/1/exe")
attempt("write through /proc/1/root", append, "/proc/1/root/.bothy/guest")
report()
