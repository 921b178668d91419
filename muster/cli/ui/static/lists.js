// The four lists: the tree of queues, the groups of a line, quotas and evictions.
import { Axis, amount, bar, called, clock, counted, duration, exactly, mark, moment, put } from "./drawing.js";
import { Rows, element } from "./rows.js";

const value = (amounts, resource) => amounts[resource]?.[0] ?? 0;
const text = (amounts, resource) => amounts[resource]?.[1] ?? "-";
const short = (amounts, resource) => (amounts[resource] ? amount(amounts[resource][0], resource) : "-");
const matches = (wanted, ...texts) => !wanted || texts.some((each) => each.toLowerCase().includes(wanted));
const cells = (node, ...classes) => classes.map((each) => node.appendChild(element("span", each)));

export class QueueTree {
  constructor(box, { open, choose }) {
    this.closed = new Set();
    this.rows = new Rows(box, {
      height: 26,
      role: "treeitem",
      make: (node) => {
        const [name] = cells(node, "text");
        const twist = name.appendChild(element("span", "twist"));
        name.append(" ");
        const label = name.appendChild(element("bdi"));
        const state = name.appendChild(element("span", "state"));
        const { whole, parts } = bar(node, "unused", "used", "borrowed", "guarantee");
        return { name, twist, label, state, whole, parts, numbers: cells(node, "number", "number", "number", "number", "number", "number") };
      },
      fill: (parts, item, node) => this.fill(parts, item, node),
      open: (item, event) => {
        if (event.target.classList?.contains("twist") && item.inner) this.toggle(item);
        else open(item.name);
      },
      choose: (item) => choose(item.name),
    });
    box.addEventListener("keydown", (event) => {
      const item = this.rows.items[this.rows.index];
      if (!item?.inner || !(event.key === "ArrowLeft" || event.key === "ArrowRight")) return;
      event.preventDefault();
      if (this.closed.has(item.name) === (event.key === "ArrowRight")) this.toggle(item);
    });
  }

  toggle(item) {
    if (!this.closed.delete(item.name)) this.closed.add(item.name);
    this.show(this.overview, this.view);
  }

  choose(name) {
    this.rows.key = `queue ${name}`;
  }

  // The names of a queue and of those below it; null for all.
  below(name) {
    if (!name || !this.children?.has(name)) return name ? new Set([name]) : null;
    const found = new Set([name]);
    for (const each of found) for (const child of this.children.get(each) ?? []) found.add(child.name);
    return found;
  }

  show(overview, view) {
    this.overview = overview;
    this.view = { ...view };
    const names = new Set(overview.queues.map(({ name }) => name));
    this.children = new Map();
    for (const each of overview.queues) {
      const parent = names.has(each.parent) ? each.parent : "";
      if (!this.children.has(parent)) this.children.set(parent, []);
      this.children.get(parent).push(each);
    }
    const items = [this.everything(overview)];
    this.collect("", 0, items);
    this.rows.show(items, (item) => `queue ${item.name}`);
  }

  everything({ queues, groups }) {
    const top = this.children.get("") ?? [];
    const { resource } = this.view;
    const sum = (kind) => top.reduce((whole, each) => whole + value(each[kind], resource), 0);
    const waiting = groups.filter((each) => each.waits).length;
    const item = { name: "", depth: 0, inner: false, state: "Open", running: groups.length - waiting, waiting, count: queues.length };
    for (const kind of ["used", "deserved", "guarantee", "borrowed"]) item[kind] = sum(kind) ? { [resource]: [sum(kind), amount(sum(kind), resource)] } : {};
    item.full = Math.max(sum("used"), sum("deserved"), sum("guarantee"), 1e-9);
    return item;
  }

  collect(parent, depth, items) {
    const { resource, order, filter } = this.view;
    const wanted = filter.toLowerCase();
    const mine = this.children.get(parent) ?? [];
    const key = { used: (each) => -value(each.used, resource), borrowed: (each) => -value(each.borrowed, resource), waiting: (each) => -each.waiting }[order];
    const sorted = [...mine].sort((one, other) => (key ? key(one) - key(other) : 0) || (one.name < other.name ? -1 : 1));
    // Bars of the same parent have one scale, so that sisters can be compared.
    const full = Math.max(...mine.map((each) => Math.max(value(each.used, resource), value(each.deserved, resource), value(each.guarantee, resource))), 1e-9);
    for (const each of sorted) {
      const inner = this.children.has(each.name);
      if (matches(wanted, each.name)) items.push({ ...each, depth, inner, full });
      if (inner && (wanted || !this.closed.has(each.name))) this.collect(each.name, depth + 1, items);
    }
  }

  fill({ name, twist, label, state, whole, parts, numbers }, item, node) {
    const { resource } = this.view;
    name.style.paddingLeft = `${item.depth * 14}px`;
    const open = !this.closed.has(item.name);
    twist.textContent = item.inner ? (open ? "▾" : "▸") : "";
    label.textContent = item.name || "All queues";
    state.textContent = item.state === "Open" ? "" : ` ${item.state}`;
    node.setAttribute("aria-level", String(item.depth + 1));
    if (item.inner) node.setAttribute("aria-expanded", String(open));
    else node.removeAttribute("aria-expanded");
    const [used, deserved, guarantee] = [item.used, item.deserved, item.guarantee].map((each) => value(each, resource) / item.full);
    const own = resource in item.deserved ? Math.min(used, deserved) : used;
    put(parts[0], own, deserved);
    put(parts[1], 0, own);
    put(parts[2], own, used);
    mark(parts[3], guarantee || -1);
    const kinds = [item.used, item.deserved, item.guarantee, item.borrowed];
    const texts = kinds.map((each) => text(each, resource));
    [...kinds.map((each) => short(each, resource)), item.running || "-", item.waiting || "-"].forEach((each, at) => { numbers[at].textContent = each; });
    const said = `${resource}: uses ${texts[0]}, deserves ${texts[1]}, guarantee ${texts[2]}, borrows ${texts[3]}`;
    whole.setAttribute("aria-label", said);
    whole.title = said;
    node.title = item.name;
  }
}

export class Groups {
  constructor(box, axisNode, { open }) {
    this.axisNode = axisNode;
    this.rows = new Rows(box, {
      height: 46,
      role: "option",
      make: (node) => {
        node.classList.add("gantt");
        const [place] = cells(node, "number");
        const two = node.appendChild(element("div", "two"));
        const first = two.appendChild(element("span"));
        const badge = first.appendChild(element("span", "badge"));
        first.append(" ");
        const name = first.appendChild(element("bdi"));
        const reason = two.appendChild(element("span", "reason text"));
        const { whole, parts } = bar(node, "waits", "runs", "start", "at", "now");
        const last = node.appendChild(element("div", "two number"));
        const age = last.appendChild(element("span"));
        const when = last.appendChild(element("span", "when"));
        return { place, badge, name, reason, whole, parts, age, when };
      },
      fill: (parts, item, node) => this.fill(parts, item, node),
      open: (item) => open(item),
    });
  }

  show(overview, view, within, legend) {
    const wanted = view.filter.toLowerCase();
    const found = overview.groups.filter((each) => (!within || within.has(each.queue)) && matches(wanted, each.name, each.namespace, each.title, each.queue, each.reason, each.message));
    this.now = moment(overview.taken);
    this.all = within === null;
    found.sort((one, other) => this.compare(one, other));
    const expected = found.filter((each) => each.start?.at || each.start?.after);
    legend.hidden = !expected.length;
    this.axis = this.span(found, expected, Number(view.window));
    this.axis.draw(this.axisNode);
    this.rows.show(found, (each) => `${each.namespace}/${each.name}`);
  }

  // Groups that wait come first: in the order of the line, or the oldest of all queues first. Then those that run, the latest first.
  compare(one, other) {
    if (one.waits !== other.waits) return other.waits - one.waits;
    if (!one.waits) return one.since > other.since ? -1 : 1;
    const places = this.all ? 0 : (one.place || 1e9) - (other.place || 1e9);
    return places || (one.created < other.created ? -1 : 1);
  }

  span(found, expected, seconds) {
    const ends = expected.map(({ start }) => moment(start.to ?? start.at ?? start.after) + 60_000).filter(Number.isFinite);
    const end = Math.max(this.now, ...ends);
    if (seconds) return new Axis(this.now - seconds * 1000, Math.min(end, this.now + seconds * 1000));
    // Nine of ten fit: one that has waited for a week must not press all others together.
    const ages = found.map((each) => this.now - moment(each.created)).filter(Number.isFinite).sort((one, other) => one - other);
    const most = ages[Math.floor((ages.length - 1) * 0.9)] ?? 60_000;
    return new Axis(this.now - Math.max(most, 60_000) * 1.05, end);
  }

  fill({ place, badge, name, reason, whole, parts, age, when }, item, node) {
    const { axis, now } = this;
    const [created, since] = [moment(item.created), moment(item.since)];
    const began = item.waits ? now : since;
    const held = item.waits || item.running > 0;
    place.textContent = item.waits && item.place ? String(item.place) : "";
    badge.textContent = item.waits ? "W" : item.running ? "R" : item.phase.slice(0, 1) || "-";
    badge.className = `badge ${item.waits ? "waits" : "runs"}`;
    badge.title = item.waits ? "waits" : item.phase;
    name.textContent = called(item);
    const why = item.waits ? [item.stage, item.message || item.reason].filter(Boolean).join(": ") || item.phase : `${item.phase}, ${counted(item.running, "pod")} on nodes`;
    reason.textContent = this.all ? `${item.queue} · ${why}` : why;
    put(parts[0], axis.at(created), axis.at(began));
    put(parts[1], held && !item.waits ? axis.at(began) : 1, held && !item.waits ? axis.at(now) : 0);
    const { at, from, to, after, arrivals } = item.start ?? {};
    // Without an end nobody knows how late it may be; after a time there is only a beginning.
    const start = at ? [moment(from ?? at), moment(at), to ? moment(to) : axis.to] : after ? [moment(after), null, axis.to] : null;
    put(parts[2], start ? axis.at(start[0]) : 1, start ? axis.at(start[2]) : 0);
    mark(parts[3], at ? axis.at(start[1]) : -1);
    mark(parts[4], axis.to > now + 1000 ? axis.at(now) : -1);
    age.textContent = duration((now - (item.waits ? created : since)) / 1000);
    const told = start && (start[1] ?? start[0]);
    when.textContent = start ? `${!at ? ">" : arrivals ? "~" : ""}${clock(told, told - now > 72_000_000 ? 86400 : 0)}` : item.start?.brief ?? "";
    const expected = start ? `, expected to start ${item.start.text || `about ${clock(told)}`}` : item.start ? `, ${item.start.text}` : "";
    whole.setAttribute("aria-label", `${item.waits ? "waits" : "runs"} since ${clock(item.waits ? created : since)}${expected}`);
    whole.title = whole.getAttribute("aria-label");
    node.title = why;
  }
}

export class Quotas {
  constructor(box) {
    this.rows = new Rows(box, {
      height: 26,
      role: "option",
      make: (node) => {
        node.classList.add("quota");
        const [name, resource] = cells(node, "text", "text");
        const { whole, parts } = bar(node, "used", "full");
        return { name, resource, whole, parts, numbers: cells(node, "number", "number", "number") };
      },
      fill: ({ name, resource, whole, parts, numbers }, item, node) => {
        const [[hard, most], [used]] = [item.hard, item.used];
        name.textContent = node.title = `${item.namespace}/${item.quota}`;
        resource.textContent = item.resource;
        const part = hard ? used / hard : used ? 1 : 0;
        put(parts[0], 0, part < 1 ? part : 0);
        put(parts[1], 0, part < 1 ? 0 : 1);
        [amount(used, item.resource), most, item.free].forEach((each, at) => { numbers[at].textContent = each; });
        const held = item.reserved ? `, of which ${item.reserved} is reserved` : "";
        whole.setAttribute("aria-label", `${amount(used, item.resource)} of ${most} is taken${held}`);
        whole.title = whole.getAttribute("aria-label");
      },
    });
  }

  show(overview, view) {
    const wanted = view.filter.toLowerCase();
    const found = overview.quotas.filter((each) => matches(wanted, each.namespace, each.quota, each.resource));
    this.rows.show(found, (each) => `${each.namespace}/${each.quota}/${each.resource}`);
  }
}

export class Evictions {
  constructor(box, { open }) {
    this.rows = new Rows(box, {
      height: 26,
      role: "option",
      make: (node) => {
        node.classList.add("eviction");
        return cells(node, "text", "text", "text");
      },
      fill: ([when, group, why], item, node) => {
        when.textContent = item.when ? clock(moment(item.when)) : "-";
        when.title = item.when ? exactly(moment(item.when)) : "";
        group.textContent = `${item.namespace}/${item.name}`;
        why.textContent = node.title = `${item.reason}: ${item.message}`;
      },
      open: (item) => open(item),
    });
  }

  show(overview, view) {
    const wanted = view.filter.toLowerCase();
    const found = overview.evictions.filter((each) => matches(wanted, each.namespace, each.name, each.reason, each.message));
    this.rows.show(found, (each) => `${each.when} ${each.namespace}/${each.name}`);
  }
}
