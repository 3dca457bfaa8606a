"""Makes as many empty files as it is told, and removes them."""

import os
import shutil
import sys

n = int(sys.argv[1])
for i in range(n):
    folder = "/tmp/many/%d" % (i % 100)
    if i < 100:
        os.makedirs(folder)
    os.close(os.open("%s/%d" % (folder, i), os.O_CREAT | os.O_WRONLY))
print(sum(len(files) for _, _, files in os.walk("/tmp/many")))
shutil.rmtree("/tmp/many")
