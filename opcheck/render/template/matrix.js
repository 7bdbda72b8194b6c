"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const CHUNK = 120;
  const BEST = "best";
  const lines = data.releases.map((release) => release.line);
  const newest = lines.length - 1;

  // What the address says is all that the page remembers.
  const view = { q: "", torch: data.torch, dtype: BEST, status: new Set(), out: true,
    sort: "name", down: false, op: "" };
  let shown = [];
  let drawn = 0;

  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "class") node.className = value;
      else if (name === "style") node.style.cssText = value;
      else node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  };

  // The run of an operator that holds in a release; null where it does not exist.
  const runAt = (op, place) => {
    let found = null;
    for (let i = 1; i < op.length && op[i][0] <= place; i += 1) found = op[i];
    return found && found.length > 1 ? found : null;
  };
  const stateOf = (run) => {
    const column = view.dtype === BEST ? run[2] : data.dtypes.indexOf(view.dtype);
    return Number(data.sets[run[1]][column]);
  };
  const stateAt = (op, place) => {
    const run = runAt(op, place);
    return run ? stateOf(run) : -1;
  };
  const sinceOf = (op, place) => {
    const state = stateAt(op, place);
    let since = place;
    while (since > 0 && stateAt(op, since - 1) === state) since -= 1;
    return since;
  };
  const unknown = data.states.findIndex(([id]) => id === "unknown");
  // Nothing is known of the release before: it may have been so for longer.
  const sinceText = (op, since) => {
    const open = since > 0 && stateAt(op, since - 1) === unknown;
    return (open ? "≤" : "") + lines[since];
  };
  // Of torch.concat() and nn.functional.gelu the last part is looked for, linalg.inv is written linalg_inv.
  const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean)
    .map((word) => word.replace(/\(.*$/, "").replace(/^(torch\.)?(ops\.)?((nn\.)?functional\.|f\.|nn\.|tensor\.)?/, ""));
  const aliases = new Map(Object.entries(data.aliases).map(([op, names]) => [op, ` ${names.join(" ").toLowerCase()}`]));
  const named = (op, name, word) => {
    if (name.includes(word) || name.includes(word.replaceAll(".", "_"))) return true;
    const others = aliases.get(op.split(".")[0]) || "";
    return others.includes(` ${word}`) || others.includes(`.${word}`);
  };
  const isOut = (name) => /\.(\w*_)?out$/.test(name) || /\.\w*out\w*$/.test(name);
  const color = (state) => `var(--${state < 0 ? "none" : data.states[state][0]})`;
  const label = (state) => (state < 0 ? "no such overload" : data.states[state][1]);

  const strip = (op) => {
    const width = 100 / lines.length;
    const stops = lines.map((_, i) => {
      const c = color(stateAt(op, i));
      const gap = i < newest ? `,var(--bg) ${(i + 1) * width - 0.7}% ${(i + 1) * width}%` : "";
      return `${c} ${i * width}% ${(i + 1) * width - (gap ? 0.7 : 0)}%${gap}`;
    });
    return make("span", { class: "strip", "aria-hidden": "true",
      style: `background:linear-gradient(90deg,${stops.join(",")})` });
  };

  const link = (address) => make("a", { href: address, rel: "noopener noreferrer" },
    address.replace("https://github.com/", ""));

  const detail = (item) => {
    const { op, run } = item;
    const box = make("div");
    const section = (title, ...children) => box.append(make("h2", {}, title), ...children);
    box.append(make("div", {}, `torch ${view.torch}: ${data.reasons[run[3]]}.`));
    section("dtypes", make("div", { class: "dtypes" }, ...data.dtypes.map((name, i) => {
      const state = Number(data.sets[run[1]][i]);
      return make("span", { class: "dot", style: `--state:${color(state)}`, title: label(state) },
        `${name}: ${label(state)}`);
    })));
    if (data.systems[run[4]]) section("macOS", make("div", {}, data.systems[run[4]]));
    const notes = run[5] || [];
    if (notes.length) {
      section("Limitations and advisories", make("ul", {}, ...notes.map((number) => {
        const [id, effect, summary, wayOut, links] = data.notes[number];
        const li = make("li", {}, make("b", {}, id), ` (${effect.replace("_", " ")}): `,
          [summary, wayOut].filter(Boolean).join(" "));
        for (const address of links) {
          if (address.startsWith("https://")) li.append(" ", link(address));
        }
        return li;
      })));
    }
    const steps = [];
    for (let i = 0; i <= newest; i += 1) {
      const state = stateAt(op, i);
      if (i === 0 ? state >= 0 : state !== stateAt(op, i - 1)) {
        steps.push(make("li", {}, make("span", { class: "dot", style: `--state:${color(state)}` },
          `${lines[i]}: ${label(state)}`)));
      }
    }
    section("History", make("ul", {}, ...steps));
    const here = new URL(location.href);
    here.hash = `op=${encodeURIComponent(op[0])}&torch=${view.torch}`;
    box.append(make("p", { class: "small" }, make("a", { href: here.hash }, "Link to this operator")));
    return make("tr", { class: "detail" }, make("td", { colspan: "5" }, box));
  };

  const row = (item) => {
    const open = view.op === item.op[0];
    const button = make("button", { class: "op", type: "button", "aria-expanded": String(open) },
      item.op[0]);
    const notes = (item.run[5] || []).length;
    const tr = make("tr", { class: "row", "data-op": item.op[0] },
      make("td", {}, button),
      make("td", { class: "status" }, make("span",
        { class: "dot", style: `--state:${color(item.state)}` }, label(item.state))),
      make("td", { class: "since" }, sinceText(item.op, item.since)),
      make("td", { class: "line" }, strip(item.op)),
      make("td", { class: "notes" }, notes ? String(notes) : ""));
    button.addEventListener("click", () => {
      const next = tr.nextElementSibling;
      const isOpen = next && next.classList.contains("detail");
      if (isOpen) next.remove();
      else tr.after(detail(item));
      button.setAttribute("aria-expanded", String(!isOpen));
      view.op = isOpen ? "" : item.op[0];
      remember();
    });
    return open ? [tr, detail(item)] : [tr];
  };

  const draw = (upto) => {
    const part = document.createDocumentFragment();
    for (const item of shown.slice(drawn, upto)) part.append(...row(item));
    $("rows").append(part);
    drawn = Math.min(upto, shown.length);
    $("more").hidden = drawn >= shown.length;
  };

  const order = {
    name: (a, b) => (a.op[0] < b.op[0] ? -1 : 1),
    status: (a, b) => a.state - b.state,
    since: (a, b) => a.since - b.since,
    notes: (a, b) => (a.run[5] || []).length - (b.run[5] || []).length,
  };

  const refresh = () => {
    const place = lines.indexOf(view.torch);
    const words = wordsOf(view.q);
    const counts = data.states.map(() => 0);
    shown = [];
    for (const op of data.ops) {
      const name = op[0].toLowerCase();
      const run = runAt(op, place);
      const wanted = op[0] === view.op && view.q === "";
      if (!run) continue;
      if (!words.every((word) => named(op[0], name, word))) continue;
      if (!view.out && isOut(op[0]) && !wanted) continue;
      const state = stateOf(run);
      counts[state] += 1;
      if (view.status.size && !view.status.has(data.states[state][0]) && !wanted) continue;
      shown.push({ op, run, state, since: sinceOf(op, place) });
    }
    const compare = order[view.sort];
    shown.sort((a, b) => (view.down ? -1 : 1) * compare(a, b) || order.name(a, b));
    for (const chip of $("statuses").children) {
      const number = counts[data.states.findIndex(([id]) => id === chip.dataset.state)];
      chip.lastChild.textContent = ` ${number.toLocaleString("en")}`;
      chip.setAttribute("aria-pressed", String(view.status.has(chip.dataset.state)));
      chip.disabled = !number && !view.status.has(chip.dataset.state);
    }
    $("count").textContent = `${shown.length.toLocaleString("en")} overloads of torch ${view.torch}`;
    for (const th of document.querySelectorAll("th[data-sort]")) {
      const own = th.dataset.sort === view.sort;
      if (own) th.setAttribute("aria-sort", view.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
    $("rows").replaceChildren();
    drawn = 0;
    const at = shown.findIndex((item) => item.op[0] === view.op);
    draw(Math.max(CHUNK, at + 20));
    return at;
  };

  const remember = () => {
    const parts = new URLSearchParams();
    if (view.op) parts.set("op", view.op);
    if (view.q) parts.set("q", view.q);
    if (view.status.size) parts.set("status", [...view.status].join(","));
    if (view.torch !== data.torch) parts.set("torch", view.torch);
    if (view.dtype !== BEST) parts.set("dtype", view.dtype);
    if (!view.out) parts.set("out", "0");
    if (view.sort !== "name" || view.down) parts.set("sort", (view.down ? "-" : "") + view.sort);
    const hash = parts.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  };

  const recall = () => {
    const parts = new URLSearchParams(location.hash.slice(1));
    const known = data.states.map(([id]) => id);
    const sort = parts.get("sort") || "name";
    view.op = parts.get("op") || "";
    view.q = parts.get("q") || "";
    view.status = new Set((parts.get("status") || "").split(",").flatMap((word) =>
      known.filter((id) => id === word || (word && id.startsWith(`${word}_`)))));
    view.torch = lines.includes(parts.get("torch")) ? parts.get("torch") : data.torch;
    view.dtype = data.dtypes.includes(parts.get("dtype")) ? parts.get("dtype") : BEST;
    view.out = parts.get("out") !== "0";
    view.down = sort.startsWith("-");
    view.sort = sort.replace("-", "") in order ? sort.replace("-", "") : "name";
    $("q").value = view.q;
    $("torch").value = view.torch;
    $("dtype").value = view.dtype;
    $("out").checked = view.out;
    if (refresh() >= 0 && view.op) {
      const tr = document.querySelector(`tr[data-op="${CSS.escape(view.op)}"]`);
      if (tr) tr.scrollIntoView({ block: "center" });
    }
  };

  for (const release of [...data.releases].reverse()) {
    $("torch").append(make("option", { value: release.line },
      `${release.line} (${release.torch}, macOS ${release.min}+)`));
  }
  $("dtype").append(make("option", { value: BEST }, "best of the usual"),
    ...data.dtypes.map((name) => make("option", { value: name }, name)));
  for (const [id, text] of data.states) {
    const chip = make("button", { class: "chip", type: "button", "data-state": id,
      "aria-pressed": "false", style: `--state:var(--${id})` }, text, make("b", {}, ""));
    chip.addEventListener("click", () => {
      if (!view.status.delete(id)) view.status.add(id);
      view.op = "";
      remember();
      refresh();
    });
    $("statuses").append(chip);
  }
  $("span").textContent = `${lines[0]} to ${lines[newest]}`;

  let waiting = 0;
  $("q").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      view.q = $("q").value.trim();
      view.op = "";
      remember();
      refresh();
    }, 80);
  });
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["torch", "dtype"]) {
    $(id).addEventListener("change", () => {
      view[id] = $(id).value;
      remember();
      refresh();
    });
  }
  $("out").addEventListener("change", () => {
    view.out = $("out").checked;
    remember();
    refresh();
  });
  for (const th of document.querySelectorAll("th[data-sort]")) {
    th.firstElementChild.addEventListener("click", () => {
      view.down = view.sort === th.dataset.sort && !view.down;
      view.sort = th.dataset.sort;
      remember();
      refresh();
    });
  }
  $("more").addEventListener("click", () => draw(drawn + CHUNK));
  if ("IntersectionObserver" in window) {
    new IntersectionObserver((entries) => {
      if (entries[0].isIntersecting && !$("more").hidden) draw(drawn + CHUNK);
    }, { rootMargin: "600px" }).observe($("more"));
  }
  document.addEventListener("keydown", (event) => {
    const typing = /INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing) {
      event.preventDefault();
      $("q").focus();
    } else if (event.key === "Escape" && document.activeElement === $("q")) {
      $("q").value = "";
      $("q").dispatchEvent(new Event("input"));
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const buttons = [...document.querySelectorAll(".op")];
      const at = buttons.indexOf(document.activeElement);
      const inSearch = document.activeElement === $("q");
      if (at < 0 && !(inSearch && event.key === "ArrowDown")) return;
      event.preventDefault();
      const next = buttons[at + (event.key === "ArrowDown" ? 1 : -1)];
      if (next) next.focus();
      else if (at === 0) $("q").focus();
    }
  });
  window.addEventListener("hashchange", recall);
  recall();
})();
