// The life of a group: a line of time with what happened, its pods as bars, and the same as a table.
import { Axis, bar, called, duration, exactly, moment, put } from "./drawing.js";
import { element } from "./rows.js";

const LETTERS = { created: "C", phase: "P", condition: "=", event: "E", pods: "▶" };
const SHOWN = 60;
const NEAR = 0.03;

export function showLife(title, body, life, start) {
  title.textContent = `${called(life)}: ${life.phase} in queue ${life.queue}`;
  const now = moment(life.taken);
  const times = [...life.moments.map((each) => moment(each.when)), ...life.pods.flatMap((each) => [moment(each.created), moment(each.placed)])].filter(Number.isFinite);
  const first = Math.min(now, ...times);
  const axis = new Axis(first - (now - first) * 0.03, now + (now - first) * 0.02);
  const parts = [ticks(axis), track(life, axis), ...life.pods.slice(0, SHOWN).map((each) => lane(each, axis, now))];
  if (life.allPods > SHOWN) parts.push(element("p", "hint", `and ${life.allPods - SHOWN} more pods`));
  if (start?.text) parts.push(element("p", "hint", start.at || start.after ? `Expected to start ${start.text}.` : start.text));
  if (life.missing) parts.push(element("p", "hint", life.missing));
  body.replaceChildren(...parts, table(life));
}

function ticks(axis) {
  const row = element("div", "lane");
  const line = element("div", "axis");
  axis.draw(line, 5);
  row.append(element("span"), line);
  return row;
}

function track(life, axis) {
  const row = element("div", "lane");
  const line = element("div", "track");
  // What happened at about the same time is one mark: letters on top of each other can't be read.
  const marks = [];
  for (const each of life.moments) {
    const at = Math.max(0, Math.min(axis.at(moment(each.when)), 1));
    const last = marks[marks.length - 1];
    if (last && at - last.at < NEAR) last.moments.push(each);
    else marks.push({ at, moments: [each] });
  }
  for (const { at, moments } of marks) {
    const letters = [...new Set(moments.map(({ kind }) => LETTERS[kind] ?? "E"))].join("");
    const point = element("i", "", letters);
    point.style.left = `${at * 100}%`;
    point.title = moments.map((each) => `${exactly(moment(each.when))} ${each.what} ${each.message}`).join("\n");
    line.append(point);
  }
  row.append(element("span", "", "what happened"), line);
  return row;
}

function lane(pod, axis, now) {
  const row = element("div", "lane");
  const name = element("span", "", pod.name);
  name.title = pod.node ? `${pod.name} on ${pod.node}` : pod.name;
  row.append(name);
  const { whole, parts } = bar(row, "waits", "runs");
  const [created, placed] = [moment(pod.created), moment(pod.placed)];
  const began = Number.isFinite(placed) ? placed : pod.node ? created : now;
  put(parts[0], axis.at(created), axis.at(began));
  put(parts[1], pod.node && !pod.over ? axis.at(began) : 1, pod.node && !pod.over ? axis.at(now) : 0);
  const said = pod.over ? `${pod.phase}, ran on ${pod.node}` : pod.node ? `on ${pod.node} for ${duration((now - began) / 1000)}` : `waits for ${duration((now - created) / 1000)}`;
  whole.setAttribute("aria-label", `${pod.name} ${said}`);
  whole.title = said;
  return row;
}

function table(life) {
  const made = element("table", "moments");
  const head = made.createTHead().insertRow();
  for (const each of ["When", "What", "Says"]) head.append(element("th", "", each));
  const rows = made.createTBody();
  for (const each of [...life.moments].reverse()) {
    const row = rows.insertRow();
    const times = each.times > 1 ? ` (${each.times} times)` : "";
    row.insertCell().textContent = exactly(moment(each.when));
    row.insertCell().textContent = `${LETTERS[each.kind] ?? "E"} ${each.what}${times}`;
    row.insertCell().textContent = each.message;
  }
  return made;
}
