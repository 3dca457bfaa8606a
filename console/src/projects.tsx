/** Projects, their plans and budgets. */
import type { Project } from "bothy";
import { useState } from "preact/hooks";
import { bothy, type Login } from "./server";
import { Button, Time, Trouble, useRead, useTrouble } from "./ui";

const plans = ["starter", "pro", "team", "unlimited"];

const budgetOf = (text: string) => {
  const n = Number(text || 0);
  if (!(n >= 0)) throw new Error(`The budget, ${text}, is not a number of 0 or more. 0 is no limit.`);
  return n;
};

function Row({ project: p, change }: { project: Project; change?: (work: () => Promise<unknown>) => Promise<void> }) {
  const [plan, setPlan] = useState(p.plan);
  const [budget, setBudget] = useState(String(p.budget?.limit ?? 0));
  const save = () => change!(() => bothy.projects.update(p.id, { plan, budget: budgetOf(budget) }));
  return (
    <tr>
      <td><b>{p.id}</b></td><td><Time at={p.createdAt} /></td>
      <td>{change ? <select aria-label={`Plan of ${p.id}`} value={plan} onChange={(e) => setPlan(e.currentTarget.value)}>{[...new Set([...plans, p.plan])].map((n) => <option key={n}>{n}</option>)}</select> : p.plan}</td>
      <td>{p.budget ? <><meter min={0} max={p.budget.limit} high={p.budget.limit * 0.8} value={p.budget.used} aria-label={`Budget of ${p.id} that is used`} /> {p.budget.used.toFixed(4)} of {p.budget.limit} {p.budget.currency}</> : "no limit"}</td>
      {change && <td><input aria-label={`Budget of ${p.id}`} inputMode="decimal" size={8} value={budget} onInput={(e) => setBudget(e.currentTarget.value)} /> <Button work={save}>Change</Button></td>}
    </tr>
  );
}

export function Projects({ login }: { login: Login }) {
  const { value, trouble, again } = useRead(() => bothy.projects.list(), "");
  const [failed, attempt] = useTrouble();
  const [name, setName] = useState("");
  const change = (work: () => Promise<unknown>) => attempt(async () => (await work(), await again()));
  return (
    <main>
      <div class="bar"><h1>Projects {value && <small>{value.length}</small>}</h1>
        {login.operator && <><label>Name <input value={name} onInput={(e) => setName(e.currentTarget.value)} /></label><Button kind="main" disabled={!name} work={() => change(() => bothy.projects.create(name))}>Make a project</Button></>}</div>
      <Trouble text={failed || trouble} />
      <table><thead><tr><th>Name</th><th>Age</th><th>Plan</th><th>Spent this month</th>{login.operator && <th>Budget a month</th>}</tr></thead>
        <tbody>{value?.map((p) => <Row key={p.id} project={p} change={login.operator ? change : undefined} />)}</tbody></table>
    </main>
  );
}
