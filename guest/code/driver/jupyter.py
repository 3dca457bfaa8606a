"""Starts ipykernel's Python kernel so that nothing is lost that is written by processes.

ipykernel has a thread read what comes to descriptors 1 and 2. Where that is late, the
end of a run is told before, and the rest is lost. Here who flushes a stream, which
ipykernel does at the end of each run, reads what is there first.
"""

import sys

del sys.path[0]  # this file's folder

import codecs
import os
import runpy
import select
import threading

CAPACITY = 64 << 10  # of a pipe, in bytes


def read_before_flush(stream):
    lock = threading.RLock()
    flush = stream.flush

    def hand_on(self):
        """Writes what is there to be read, and returns its length: 0 at the end, None for nothing yet."""
        with lock:
            poll = select.poll()
            poll.register(self._fid, select.POLLIN)
            if not poll.poll(0):
                return None
            data = os.read(self._fid, CAPACITY)
            if not hasattr(self, "_decoder"):
                self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
            text = self._decoder.decode(data)
            if text:
                self.write(text)
            os.write(self._original_stdstream_copy, data)
            return len(data)

    def watch(self):
        if self._fid is None:
            return
        try:
            poll = select.poll()
            poll.register(self._fid, select.POLLIN)
            while poll.poll() and self._should_watch and hand_on(self) != 0:
                pass
        except Exception:
            self._exc = sys.exc_info()

    def read_and_flush(self):
        # A process that was forked has the pipe, but not the thread.
        if getattr(self, "_fid", None) is not None and self._should_watch and self._is_master_process():
            left = CAPACITY  # others may write without an end
            while left > 0:
                n = hand_on(self)
                if not n:
                    break
                left -= n
        flush(self)

    stream._watch_pipe_fd = watch
    stream.flush = read_and_flush


try:
    from ipykernel.iostream import OutStream

    if hasattr(OutStream, "_watch_pipe_fd") and hasattr(OutStream, "_is_master_process"):
        read_before_flush(OutStream)
except ImportError:
    pass  # the launcher says so
runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)
