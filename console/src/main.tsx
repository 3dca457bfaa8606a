import { render } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { AgentsPage } from "./agents";
import { Audit } from "./audit";
import { forgetDrafts } from "./drafts";
import { Events } from "./events";
import { Home } from "./home";
import { HostPage } from "./host";
import { Keys } from "./keys";
import { SandboxList } from "./list";
import { forgetNotebooks } from "./notebook";
import { Palette } from "./palette";
import { Projects } from "./projects";
import { SandboxPage } from "./sandbox";
import { type Login, logIn, logOut, may, textOf, whoAmI } from "./server";
import { Templates } from "./templates";
import { Tree } from "./tree";
import { A, Command, go, setTitle } from "./ui";
import { Usage } from "./usage";
import { Webhooks } from "./webhooks";
import "./style.css";

/** A hut, drawn here so that no file is fetched for it. */
const Mark = () => <svg viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="2" stroke-linejoin="round"><path d="M3 11.5 12 4l9 7.5M5.5 10v10h13V10M10 20v-6h4v6" /></svg>;

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

const themes = ["system", "light", "dark"];

function setTheme(theme: string): void {
  document.documentElement.style.colorScheme = theme === "system" ? "" : theme;
}

/** The colours: the system's, or those that were chosen in this browser. */
function Theme() {
  const [theme, set] = useState(() => localStorage.getItem("theme") ?? "system");
  const turn = () => {
    const next = themes[(themes.indexOf(theme) + 1) % themes.length]!;
    if (next === "system") localStorage.removeItem("theme");
    else localStorage.setItem("theme", next);
    setTheme(next);
    set(next);
  };
  return <button type="button" class="quiet theme" onClick={turn} title="Follow the system, or be light or dark">Theme: {theme}</button>;
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
      <h1><Mark />Bothy</h1>
      <form onSubmit={(e) => void submit(e)}>
        <label for="key">API key</label>
        <input id="key" name="key" type="password" autocomplete="off" required autofocus />
        <button type="submit" class="main">Log in</button>
        {trouble && <p class="trouble" role="alert">{trouble}</p>}
      </form>
      <p>Or run <Command>bothy console</Command>, which opens this page logged in.</p>
    </main>
  );
}

function Page({ login, at }: { login: Login; at: string[] }) {
  const [room = "home", id, tab, ...folder] = at;
  if (room === "sandboxes" && id) return <SandboxPage key={id} id={id} tab={tab ?? "overview"} folder={`/${folder.join("/")}`} login={login} />;
  switch (room) {
    case "home": return <Home login={login} />;
    case "sandboxes": return <SandboxList login={login} />;
    case "snapshots": return <Tree login={login} />;
    case "templates": return <Templates login={login} />;
    case "events": return <Events />;
    case "usage": return <Usage />;
    case "keys": return <Keys login={login} />;
    case "webhooks": return <Webhooks />;
    case "agents": return <AgentsPage />;
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
    if (location.hash) history.replaceState(null, "", location.pathname + location.search);
    (code ? logIn({ code }) : whoAmI()).then((l) => setLogin(l ?? null), (error) => (setSaid(textOf(error)), setLogin(null)));
    const ended = () => (setSaid("The login has ended. Log in again."), setLogin(null));
    // A link of bothy console that is opened in a tab that is already here changes the hash alone.
    const linked = () => /^#code=/.test(location.hash) && location.reload();
    addEventListener("logged-out", ended);
    addEventListener("hashchange", linked);
    return () => {
      removeEventListener("logged-out", ended);
      removeEventListener("hashchange", linked);
    };
  }, []);
  useLayoutEffect(() => {
    const [room = "home", id, tab] = at;
    setTitle(id && tab, id ?? room); // a sandbox's page puts its name there
  }, [at]);
  const leave = () => void logOut().then(() => {
    forgetDrafts();
    forgetNotebooks();
    setSaid("");
    setLogin(null);
  });
  if (login === undefined) return <p class="login" role="status">Asking the server…</p>;
  if (!login) return <LoginPage said={said} done={setLogin} />;
  const admin = may(login, "admin");
  const groups = [["", "sandboxes", "snapshots", "templates", "events"], ["usage", ...(admin ? ["projects", "keys", "webhooks", "agents", "audit"] : [])], login.operator && admin ? ["host"] : []];
  const rooms = groups.flat();
  return (
    <>
      <header>
        <a class="brand" href="/console/" onClick={(e) => (e.preventDefault(), go(""))}><Mark />Bothy</a>
        <nav aria-label="Pages">{groups.map((group, i) => <ul key={i}>{group.map((r) => <li key={r}><A to={r} current={(at[0] ?? "") === r}>{r || "home"}</A></li>)}{i === 2 && <li><a href="/docs">API</a></li>}</ul>)}</nav>
        <Palette login={login} rooms={rooms} at={at} />
        <div class="account">
          <span class="who"><b>{login.project}</b>{login.token_name && ` · ${login.token_name}`}{!may(login, "sandboxes:write") && " · read only"}</span>
          <Theme />
          <button type="button" class="quiet" onClick={leave}>Log out</button>
        </div>
      </header>
      <Page login={login} at={at} />
    </>
  );
}

setTheme(localStorage.getItem("theme") ?? "system");
render(<App />, document.getElementById("app")!);
