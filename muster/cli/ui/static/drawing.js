// Times, amounts, bars and charts.
import { element } from "./rows.js";

const SVG = "http://www.w3.org/2000/svg";
const UNITS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
const STEPS = [10, 30, 60, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];
const BYTES = /^(memory|ephemeral-storage|storage|hugepages-.*|requests\.(memory|storage|ephemeral-storage)|limits\.memory)$/;
const MULTIPLES = [[2 ** 40, "Ti"], [2 ** 30, "Gi"], [2 ** 20, "Mi"], [2 ** 10, "Ki"]];

export const moment = (text) => (text ? Date.parse(text) : NaN);

export function duration(seconds) {
  const found = UNITS.find(([size]) => seconds >= size * (size === 1 ? 1 : 2)) ?? UNITS[3];
  return Number.isFinite(seconds) ? `${Math.max(0, Math.floor(seconds / found[0]))}${found[1]}` : "-";
}

export function amount(value, resource) {
  if (!value) return "0";
  const multiple = BYTES.test(resource) && MULTIPLES.find(([size]) => value >= size);
  const [shown, unit] = multiple ? [value / multiple[0], multiple[1]] : [value, ""];
  return `${Number(shown.toPrecision(3))}${unit}`;
}

// A group as `muster why` takes it: by its workload, where it was made for one.
export function called({ namespace, title }) {
  const [kind, ...name] = title.split(" ");
  return kind === "PodGroup" ? `${namespace}/${name.join(" ")}` : `${namespace}/${kind.toLowerCase()}/${name.join(" ")}`;
}

export const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

export function clock(time, seconds = 0) {
  const options = seconds >= 86400 ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  if (seconds && seconds < 60) options.second = "2-digit";
  return new Date(time).toLocaleString(undefined, options);
}

// The whole of a time: for people who want to compare it with a log.
export const exactly = (time) => new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });

// A bar with parts of these classes; give each a place with `put`.
export function bar(node, ...classes) {
  const whole = element("div", "bar");
  whole.setAttribute("role", "img");
  const parts = classes.map((each) => whole.appendChild(element("i", each)));
  node.append(whole);
  return { whole, parts };
}

export function put(part, from, to) {
  const [left, right] = [Math.max(0, Math.min(from, 1)), Math.max(0, Math.min(to, 1))];
  part.hidden = !(right > left);
  if (part.hidden) return;
  part.style.left = `${left * 100}%`;
  part.style.width = `${(right - left) * 100}%`;
}

export function mark(part, at) {
  part.hidden = !(at >= 0 && at <= 1);
  if (!part.hidden) part.style.left = `${at * 100}%`;
}

// A span of time, and where in it a moment lies, from 0 to 1.
export class Axis {
  constructor(from, to) {
    this.from = from;
    this.to = Math.max(to, from + 1000);
  }

  at(time) {
    return (time - this.from) / (this.to - this.from);
  }

  ticks(most) {
    const seconds = (this.to - this.from) / 1000;
    const step = STEPS.find((each) => seconds / each <= most) ?? seconds / most;
    // Whole hours and days of the person's own clock.
    const zone = new Date(this.from).getTimezoneOffset() * 60_000;
    const first = Math.ceil((this.from - zone) / (step * 1000)) * step * 1000 + zone;
    const found = [];
    for (let time = first; time < this.to; time += step * 1000) found.push({ time, text: clock(time, step) });
    return found;
  }

  draw(node, most = 4) {
    node.replaceChildren(
      ...this.ticks(most).filter(({ time }) => this.at(time) < 0.93).map(({ time, text }) => {
        const tick = element("b", "", text);
        tick.style.left = `${this.at(time) * 100}%`;
        return tick;
      }),
    );
  }
}

function shape(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

// Steps from point to point: what was read is so until the next reading.
function steps(points, x, y) {
  let path = "";
  points.forEach(([time, value], at) => {
    path += at ? `H${x(time).toFixed(1)}V${y(value).toFixed(1)}` : `M${x(time).toFixed(1)},${y(value).toFixed(1)}`;
  });
  return path;
}

// A chart of lines over time. `lines`: { values, kind, filled }; `write(value)` says a value for people.
export function chart(title, times, lines, write, height = 190) {
  const [width, left, right, top, bottom] = [640, 58, 10, 10, 22];
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img" });
  const axis = new Axis(times[0], times[times.length - 1]);
  const peak = Math.max(...lines.flatMap(({ values }) => values), 1e-9) * 1.08;
  const x = (time) => left + axis.at(time) * (width - left - right);
  const y = (value) => height - bottom - (value / peak) * (height - top - bottom);
  const marks = [0, 0.5, 1].map((part) => (peak / 1.08) * part);
  for (const value of marks.filter((each, at) => marks.findIndex((other) => write(other) === write(each)) === at)) {
    svg.append(shape("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: "grid" }));
    svg.append(shape("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, write(value)));
  }
  for (const { time, text } of axis.ticks(6)) {
    svg.append(shape("text", { x: x(time), y: height - 6, "text-anchor": "middle" }, text));
  }
  for (const { values, kind, filled } of lines) {
    const path = steps(values.map((value, at) => [times[at], value]), x, y);
    const closed = `${path}V${y(0).toFixed(1)}H${x(times[0]).toFixed(1)}Z`;
    svg.append(shape("path", { d: filled ? closed : path, class: kind }));
  }
  const last = lines.map(({ name, values }) => `${name} ${write(values[values.length - 1])}`).join(", ");
  svg.setAttribute("aria-label", `${title}: now ${last}`);
  const figure = element("div");
  figure.append(element("h3", "", `${title}: now ${last}`), svg);
  return figure;
}
