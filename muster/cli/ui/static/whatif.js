// What if: the form, and what the scheduler would make of it.
import { amount, called, counted } from "./drawing.js";
import { element } from "./rows.js";

const LISTED = 200;
const by = (id) => document.getElementById(id);
const words = (text) => text.split(/[\s,]+/).filter(Boolean);

export class WhatIf {
  constructor(form, effects, ask) {
    Object.assign(this, { form, effects, ask });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.answer();
    });
  }

  show({ nodes, queues }, possible) {
    by("ask").disabled = !possible;
    if (!possible) this.say("What if needs the whole cluster: nodes may not be listed with your permissions.");
    names(by("nodes"), nodes);
    names(by("queue-names"), queues.map(({ name }) => name));
    if (!by("add-like").value && nodes.length) by("add-like").value = nodes[0];
  }

  changes() {
    const found = { drain: words(by("drain").value) };
    const queue = by("weight-queue").value.trim();
    if (queue) found.weights = { [queue]: Number(by("weight").value) };
    const count = Number(by("add-count").value);
    if (count) found.add = [{ like: by("add-like").value.trim(), count }];
    return found;
  }

  say(text) {
    this.effects.replaceChildren(element("p", "hint", text));
  }

  async answer() {
    by("ask").disabled = true;
    this.say("The scheduler decides …");
    try {
      this.tell(await this.ask("what-if", this.changes()));
    } catch (error) {
      this.say(error.message);
    }
    by("ask").disabled = false;
  }

  tell({ starts, waits, displaced, evicted, queues, waiting }) {
    const parts = [element("h3", "", `Groups that wait: ${waiting[1]} with the changes, ${waiting[0]} without.`)];
    const lists = [
      ["Start with the changes, and not without", starts],
      ["Wait with the changes, and not without", waits],
      ["Have pods on drained nodes", displaced],
      ["Lose pods to others", evicted],
    ];
    for (const [what, found] of lists) if (found.length) parts.push(...list(what, found));
    if (queues.length) parts.push(element("h3", "", "Shares of queues, without the changes → with them"), shares(queues));
    if (parts.length === 1) parts.push(element("p", "hint", "Nothing else is another: no group starts for it, none has to wait, and no share changes."));
    this.effects.replaceChildren(...parts);
  }
}

function list(what, found) {
  const table = element("table", "moments even");
  for (const each of found.slice(0, LISTED)) {
    const row = table.insertRow();
    row.insertCell().textContent = called(each);
    row.insertCell().textContent = each.queue;
    row.insertCell().textContent = [each.pods ? counted(each.pods, "pod") : "", each.message].filter(Boolean).join(": ");
  }
  const more = found.length > LISTED ? `, of which the first ${LISTED}` : "";
  return [element("h3", "", `${what}: ${counted(found.length, "group")}${more}`), table];
}

function shares(queues) {
  const table = element("table", "moments even");
  const head = table.createTHead().insertRow();
  for (const each of ["Queue", "Resource", "Used", "Deserved"]) head.append(element("th", "", each));
  const body = table.createTBody();
  for (const { name, used, deserved } of queues.slice(0, LISTED)) {
    const resources = new Set([...used, ...deserved].flatMap(Object.keys));
    resources.delete("pods");
    for (const resource of resources) {
      const texts = [used, deserved].map(([one, other]) => [one, other].map((each) => amount(each[resource]?.[0] ?? 0, resource)));
      if (texts.every(([one, other]) => one === other)) continue;
      const row = body.insertRow();
      row.insertCell().textContent = name;
      row.insertCell().textContent = resource;
      for (const [one, other] of texts) row.insertCell().textContent = one === other ? one : `${one} → ${other}`;
    }
  }
  return table;
}

function names(list, found) {
  const values = found.slice(0, 2000);
  if (list.options.length === values.length && values.every((each, at) => list.options[at].value === each)) return;
  list.replaceChildren(...values.map((each) => new Option("", each)));
}
