/** Streams that a page follows for as long as somebody looks at it. */
import { useEffect, useRef, useState } from "preact/hooks";
import { hasEnded } from "./server";

/**
 * A browser opens six connections to a server that speaks HTTP/1.1, for all of its tabs together: one that has not
 * been looked at for so long gives its own back.
 */
const hiddenMs = 20_000;

function whenVisible(): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((done) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      done();
    };
    document.addEventListener("visibilitychange", look);
  });
}

/** Ends with the one it is given, and when nobody has looked for a while. */
function whileVisible(parent: AbortSignal): AbortSignal {
  const own = new AbortController();
  let timer = 0;
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = window.setTimeout(() => own.abort(), hiddenMs);
  };
  document.addEventListener("visibilitychange", look);
  own.signal.addEventListener("abort", () => (clearTimeout(timer), document.removeEventListener("visibilitychange", look)));
  parent.addEventListener("abort", () => own.abort());
  return own.signal;
}

/**
 * Runs what follows a stream, again a second after it broke or ended, and says whether the connection stands. It is
 * told when a stream is opened again, and reports by `stands` that it has one.
 */
export function useStream(run: (signal: AbortSignal, stands: () => void) => Promise<void>, key: unknown): boolean {
  const [connected, setConnected] = useState(true);
  const latest = useRef(run);
  latest.current = run;
  useEffect(() => {
    const stop = new AbortController();
    const forever = async () => {
      while (!stop.signal.aborted) {
        await whenVisible();
        const signal = whileVisible(stop.signal);
        await latest.current(signal, () => setConnected(true)).catch((error) => {
          if (hasEnded(error)) dispatchEvent(new Event("logged-out"));
        });
        if (stop.signal.aborted) return;
        if (!signal.aborted) setConnected(false);
        await new Promise((r) => setTimeout(r, 1000));
      }
    };
    void forever();
    return () => stop.abort();
  }, [key]);
  return connected;
}
