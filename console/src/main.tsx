import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Audit, Keys, Templates, Usage } from "./admin";
import { HostPage } from "./host";
import { SandboxList } from "./list";
import { Projects } from "./projects";
import { SandboxPage } from "./sandbox";
import { type Login, logIn, logOut, may, textOf, whoAmI } from "./server";
import { Tree } from "./tree";
import { A, Command } from "./ui";
import "./style.css";

function useAddress(): string[] {
  const read = () => location.pathname.replace(/^\/console\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
  const [parts, set] = useState(read);
  useEffect(() => {
    const changed = () => set(read());
    addEventListener("popstate", changed);
    return () => removeEventListener("popstate", changed);
  }, []);
  return parts;
}

function LoginPage({ done, said }: { done: (l: Login) => void; said: string }) {
  const [trouble, setTrouble] = useState(said);
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const field = (e.target as HTMLFormElement).elements.namedItem("key") as HTMLInputElement;
    const key = field.value;
    field.value = "";
    try {
      done((await logIn({ key }))!);
    } catch (error) {
      setTrouble(textOf(error));
    }
  };
  return (
    <main class="login">
      <h1>Bothy</h1>
      <form onSubmit={(e) => void submit(e)}>
        <label for="key">API key</label>
        <input id="key" name="key" type="password" autocomplete="off" required />
        <button type="submit">Log in</button>
        {trouble && <p class="trouble" role="alert">{trouble}</p>}
      </form>
      <p>Or run <Command>bothy console</Command>, which opens this page logged in.</p>
    </main>
  );
}

function Page({ login, at }: { login: Login; at: string[] }) {
  const [room = "sandboxes", id, tab] = at;
  if (room === "sandboxes" && id) return <SandboxPage key={id} id={id} tab={tab ?? "overview"} login={login} />;
  switch (room) {
    case "sandboxes": return <SandboxList login={login} />;
    case "snapshots": return <Tree login={login} />;
    case "templates": return <Templates login={login} />;
    case "usage": return <Usage />;
    case "keys": return <Keys />;
    case "projects": return <Projects login={login} />;
    case "host": return <HostPage />;
    case "audit": return <Audit login={login} />;
  }
  return <main><h1>Nothing here</h1><p>There is no page at this address. <A to="sandboxes">The sandboxes</A> are a good place to begin.</p></main>;
}

function App() {
  const [login, setLogin] = useState<Login | null>();
  const [said, setSaid] = useState("");
  const at = useAddress();
  useEffect(() => {
    const code = /^#code=([0-9a-f]+)$/.exec(location.hash)?.[1];
    history.replaceState(null, "", location.pathname);
    (code ? logIn({ code }) : whoAmI()).then((l) => setLogin(l ?? null), (error) => (setSaid(textOf(error)), setLogin(null)));
    const ended = () => (setSaid("The login has ended. Log in again."), setLogin(null));
    addEventListener("logged-out", ended);
    return () => removeEventListener("logged-out", ended);
  }, []);
  if (login === undefined) return <p class="login" role="status">Asking the server…</p>;
  if (!login) return <LoginPage said={said} done={setLogin} />;
  const rooms = ["sandboxes", "snapshots", "templates", "usage", ...(may(login, "admin") ? ["projects", "keys", "audit", ...(login.operator ? ["host"] : [])] : [])];
  return (
    <>
      <header>
        <strong>Bothy</strong>
        <nav aria-label="Pages">{rooms.map((r) => <A key={r} to={r} current={(at[0] ?? "sandboxes") === r}>{r}</A>)}<a href="/docs">API</a></nav>
        <span class="who">{login.project}{login.token_name && ` · ${login.token_name}`}{!may(login, "sandboxes:write") && " · read only"}</span>
        <button type="button" onClick={() => void logOut().then(() => (setSaid(""), setLogin(null)))}>Log out</button>
      </header>
      <Page login={login} at={at} />
    </>
  );
}

render(<App />, document.getElementById("app")!);
