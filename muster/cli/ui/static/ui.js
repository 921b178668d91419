// The page: what is chosen in it, its keys, and the readings that it shows.
import { chart, amount, moment, clock, counted } from "./drawing.js";
import { QueueTree, Groups, Quotas, Evictions } from "./lists.js";
import { showLife } from "./life.js";
import { WhatIf } from "./whatif.js";
import { element } from "./rows.js";

const ORDERS = ["name", "used", "borrowed", "waiting"];
const TABS = ["line", "history", "quotas", "evictions", "what-if"];
const WINDOWS = [["", "best fit"], ["3600", "1 hour"], ["21600", "6 hours"], ["86400", "1 day"], ["604800", "7 days"]];
const POLL = 1000; // milliseconds; the answer is empty where nothing new was read

const by = (id) => document.getElementById(id);
const view = { queue: "", resource: "", order: "name", tab: "line", window: "", filter: "", life: null };
let news = null;
let known = "";
let silent = false; // whether the last question for news had no answer

export async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const answer = await fetch(path, { ...options, cache: "no-store", redirect: "error" });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.status === 204 ? null : answer.json();
}

const tree = new QueueTree(by("tree"), { open: (name) => { choose(name); show("line"); }, choose });
const groups = new Groups(by("groups"), by("axis"), { open: (group) => openLife(group) });
const quotas = new Quotas(by("quota-rows"));
const evictions = new Evictions(by("eviction-rows"), { open: (each) => openLife(each) });
const whatIf = new WhatIf(by("suppose"), by("effects"), ask);

// ── what is shown ──────────────────────────────────────────────────────────────────────────────────────────────────

function choose(name) {
  if (view.queue === name) return;
  view.queue = name;
  remember();
  paintSide();
}

function show(tab) {
  view.tab = tab;
  for (const each of TABS) {
    const chosen = each === tab;
    by(each).hidden = !chosen;
    by(`tab-${each}`).setAttribute("aria-selected", String(chosen));
    by(`tab-${each}`).tabIndex = chosen ? 0 : -1;
  }
  remember();
  paintSide();
}

function paint() {
  const { overview } = news;
  const resources = resourcesOf(overview);
  if (!resources.includes(view.resource)) view.resource = resources[0] ?? "cpu";
  options(by("resource"), resources.map((each) => [each, each]), view.resource);
  by("bar-title").textContent = view.resource;
  tree.show(overview, view);
  whatIf.show(overview, news.whatIf);
  tell(news.trouble && `not read again: ${news.trouble}`);
  by("notes").replaceChildren(...[...overview.missing, news.starts.missing].filter(Boolean).map((each) => element("div", "text", `note: ${each}`)));
  paintSummary();
  paintSide();
}

function paintSummary() {
  const { taken, queues, groups: all } = news.overview;
  const waiting = all.filter((each) => each.waits).length;
  const running = all.filter((each) => !each.waits && each.running).length;
  const over = all.length - waiting - running;
  const said = [`${clock(moment(taken), 30)}`, counted(queues.length, "queue"), counted(all.length, "group"), `${waiting} waiting`, `${running} running`, ...(over ? [`${over} over`] : [])];
  by("summary").textContent = said.join(" · ");
  document.title = `${waiting} wait · muster ui`;
}

function paintSide() {
  if (!news) return;
  const title = view.queue || "All queues";
  by("line-title").textContent = title;
  by("history-title").textContent = title;
  if (view.tab === "line") groups.show(news.overview, view, tree.below(view.queue), by("legend-start"));
  if (view.tab === "quotas") quotas.show(news.overview, view);
  if (view.tab === "evictions") evictions.show(news.overview, view);
  if (view.tab === "history") paintHistory();
}

async function paintHistory() {
  const { queue, resource } = view;
  try {
    const found = await ask(`history?queue=${encodeURIComponent(queue)}&resource=${encodeURIComponent(resource)}`);
    if (queue !== view.queue || resource !== view.resource) return;
    const times = found.times.map(moment);
    if (times.length < 2) {
      by("charts").replaceChildren(element("p", "hint", "The history begins when the command is started: one reading so far."));
      return;
    }
    by("charts").replaceChildren(
      chart(resource, times, [
        { name: "used", values: found.used, kind: "area", filled: true },
        { name: "deserved", values: found.deserved, kind: "due" },
      ], (value) => amount(value, resource)),
      chart("groups", times, [{ name: "waiting", values: found.waiting, kind: "count", filled: true }], (value) => String(Math.round(value)), 120),
    );
  } catch (error) {
    fail(error);
  }
}

async function openLife(group) {
  const { namespace, name } = group;
  view.life = { namespace, name };
  try {
    const found = await ask(`group?namespace=${encodeURIComponent(namespace)}&name=${encodeURIComponent(name)}`);
    if (view.life?.name !== name || view.life.namespace !== namespace) return;
    by("life").hidden = false;
    showLife(by("life-title"), by("life-body"), found, group.start);
  } catch (error) {
    closeLife();
    fail(error);
  }
}

function closeLife() {
  view.life = null;
  by("life").hidden = true;
}

function tell(trouble) {
  by("trouble").hidden = !trouble;
  by("trouble").textContent = trouble;
}

function fail(error) {
  tell(error instanceof TypeError ? "muster ui doesn't answer any more: is it still running?" : error.message);
}

function resourcesOf({ queues }) {
  const found = new Set();
  for (const each of queues) for (const name of [...Object.keys(each.used), ...Object.keys(each.deserved)]) found.add(name);
  found.delete("pods");
  const first = ["cpu", "memory"].filter((each) => found.delete(each));
  return [...first, ...[...found].sort()];
}

function options(select, values, chosen) {
  const same = select.options.length === values.length && values.every(([value], at) => select.options[at].value === value);
  if (!same) select.replaceChildren(...values.map(([value, text]) => new Option(text, value)));
  select.value = chosen;
}

// ── what people do ─────────────────────────────────────────────────────────────────────────────────────────────────

function remember() {
  const kept = new URLSearchParams();
  for (const key of ["queue", "resource", "order", "tab", "window", "filter"]) if (view[key]) kept.set(key, view[key]);
  history.replaceState(null, "", `#${kept}`);
}

function recall() {
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const key of ["queue", "resource", "window", "filter"]) view[key] = kept.get(key) ?? "";
  view.order = ORDERS.includes(kept.get("order")) ? kept.get("order") : ORDERS[0];
  view.tab = TABS.includes(kept.get("tab")) ? kept.get("tab") : TABS[0];
  tree.choose(view.queue);
}

function set(key, value) {
  view[key] = value;
  remember();
  if (news) paint();
}

const next = (values, one) => values[(values.indexOf(one) + 1) % values.length];
const focus = (id, tab) => { if (tab) show(tab); by(id).focus(); };
const KEYS = {
  "/": () => by("filter").select(),
  "?": () => by("help").showModal(),
  q: () => focus("tree"),
  g: () => focus("groups", "line"),
  r: () => set("resource", next(resourcesOf(news.overview), view.resource)),
  s: () => set("order", by("order").value = next(ORDERS, view.order)),
  " ": () => ask("read", {}).catch(fail),
  Escape: () => (view.life ? closeLife() : set("filter", by("filter").value = "")),
};
TABS.forEach((tab, at) => { KEYS[at + 1] = () => { show(tab); by(`tab-${tab}`).focus(); }; });

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (typing && event.key === "Escape") event.target.blur();
  const pressing = event.target.matches("button") && event.key === " ";
  if ((typing && event.key !== "Escape") || pressing || by("help").open || !news || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});

by("filter").addEventListener("input", (event) => set("filter", event.target.value));
by("resource").addEventListener("change", (event) => set("resource", event.target.value));
by("order").addEventListener("change", (event) => set("order", event.target.value));
by("window").addEventListener("change", (event) => set("window", event.target.value));
by("keys").addEventListener("click", () => by("help").showModal());
by("life-close").addEventListener("click", closeLife);
document.querySelector(".tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  show(TABS[(TABS.indexOf(view.tab) + step + TABS.length) % TABS.length]);
  by(`tab-${view.tab}`).focus();
});
for (const tab of TABS) by(`tab-${tab}`).addEventListener("click", () => show(tab));

// ── readings ───────────────────────────────────────────────────────────────────────────────────────────────────────

async function follow() {
  try {
    const found = await ask(`data?known=${encodeURIComponent(known)}`);
    if (silent && news) tell(news.trouble && `not read again: ${news.trouble}`);
    silent = false;
    if (found) {
      news = found;
      for (const each of found.overview.groups) if (each.waits) each.start = found.starts.groups[`${each.namespace}/${each.name}`];
      known = String(found.number);
      paint();
    }
  } catch (error) {
    silent = true;
    fail(error);
  }
  setTimeout(follow, POLL);
}

recall();
options(by("order"), ORDERS.map((each) => [each, each]), view.order);
options(by("window"), WINDOWS, view.window);
by("filter").value = view.filter;
show(view.tab);
follow();


