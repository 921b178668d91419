// Lists of any length, of which only the rows that are seen are elements. A row's texts come from tenants: they become text, never markup.

export function element(name, className = "", text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== "") made.textContent = text;
  return made;
}

// A list in `box`. `make(row)` puts a row's elements in place and returns them; `fill(parts, item, row)` writes an item into them.
export class Rows {
  constructor(box, { height, role, make, fill, open = () => {}, choose = () => {} }) {
    Object.assign(this, { box, height, role, make, fill, open, choose });
    this.items = [];
    this.key = "";
    this.pool = new Map();
    this.free = [];
    this.sheet = element("div", "sheet");
    box.append(this.sheet);
    box.addEventListener("scroll", () => this.soon(), { passive: true });
    box.addEventListener("keydown", (event) => this.pressed(event));
    box.addEventListener("click", (event) => this.clicked(event));
    new ResizeObserver(() => this.soon()).observe(box);
  }

  // `keyOf(item)`: what stays the same of an item from one reading to the next.
  show(items, keyOf) {
    this.items = items;
    this.keyOf = keyOf;
    this.sheet.style.height = `${items.length * this.height}px`;
    this.stale = true;
    this.soon();
  }

  get index() {
    if (this.items[this.last] && this.keyOf(this.items[this.last]) === this.key) return this.last;
    this.last = this.items.findIndex((item) => this.keyOf(item) === this.key);
    return this.last;
  }

  select(index, { scroll = true } = {}) {
    if (!this.items.length) return;
    const at = Math.max(0, Math.min(index, this.items.length - 1));
    this.last = at;
    this.key = this.keyOf(this.items[at]);
    if (scroll) {
      const top = at * this.height;
      const { scrollTop, clientHeight } = this.box;
      if (top < scrollTop) this.box.scrollTop = top;
      else if (top + this.height > scrollTop + clientHeight) this.box.scrollTop = top + this.height - clientHeight;
    }
    this.choose(this.items[at]);
    this.stale = true;
    this.soon();
  }

  soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    const { scrollTop, clientHeight } = this.box;
    if (!clientHeight) return;
    const first = Math.max(0, Math.floor(scrollTop / this.height) - 2);
    const end = Math.min(this.items.length, Math.ceil((scrollTop + clientHeight) / this.height) + 2);
    for (const [at, row] of this.pool) {
      if (at < first || at >= end) {
        this.pool.delete(at);
        this.free.push(row);
      }
    }
    const chosen = this.index;
    for (let at = first; at < end; at++) {
      let row = this.pool.get(at);
      if (row && !this.stale) continue;
      row = row ?? this.free.pop() ?? this.row();
      this.pool.set(at, row);
      row.node.hidden = false;
      row.node.style.transform = `translateY(${at * this.height}px)`;
      row.node.classList.toggle("chosen", at === chosen);
      row.node.setAttribute("aria-selected", String(at === chosen));
      row.node.setAttribute("aria-setsize", String(this.items.length));
      row.node.setAttribute("aria-posinset", String(at + 1));
      row.at = at;
      this.fill(row.parts, this.items[at], row.node);
      if (at === chosen) this.box.setAttribute("aria-activedescendant", row.node.id);
    }
    for (const row of this.free) row.node.hidden = true;
    if (chosen < first || chosen >= end) this.box.removeAttribute("aria-activedescendant");
    this.stale = false;
  }

  row() {
    const node = element("div", "row");
    node.setAttribute("role", this.role);
    node.id = `${this.box.id}-${this.sheet.childElementCount}`;
    this.sheet.append(node);
    const row = { node, parts: this.make(node), at: 0 };
    node.row = row;
    return row;
  }

  clicked(event) {
    const node = event.target.closest(".row");
    if (!node || !this.sheet.contains(node)) return;
    this.select(node.row.at, { scroll: false });
    this.open(this.items[node.row.at], event);
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 1);
    const moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves) {
      event.preventDefault();
      this.select(Math.max(0, this.index) + moves[event.key]);
    } else if (event.key === "Enter" && this.index >= 0) {
      event.preventDefault();
      this.open(this.items[this.index], event);
    }
  }
}
