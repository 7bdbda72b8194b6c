"use strict";
(() => {
  const input = document.getElementById("q");
  const list = document.getElementById("results");
  const found = document.getElementById("found");
  const top = document.body.dataset.top;
  const FEW = 60;
  let kinds = [];
  let dtypes = {};
  let entries = null;

  // Called by search-index.js, which is fetched when somebody is about to search.
  window.opcheckIndex = ([names, spellings, differing, rows]) => {
    kinds = names;
    dtypes = spellings;
    entries = rows.map(([kind, name, address, beside, others, set]) => {
      const last = name.replace(/^.*(::|:)/, "").toLowerCase();
      return { kind, name, address, beside, others, states: differing[set] || {}, last, whole: name.toLowerCase(), bare: last.replace(/^_+/, "") };
    });
    show();
  };
  const load = () => {
    if (document.getElementById("index")) return;
    const script = document.createElement("script");
    script.id = "index";
    script.src = `${top}search-index.js`;
    document.head.append(script);
  };

  // How well an entry matches, 0 best; -1: not at all.
  const rank = (entry, query) => {
    if (entry.last === query || entry.whole === query) return 0;
    if (entry.others.some((other) => other.toLowerCase() === query || other.toLowerCase().endsWith(`.${query}`))) return 1;
    if (entry.last.startsWith(query) || entry.whole.startsWith(query)) return 2;
    if (entry.bare.startsWith(query)) return 3;
    if (entry.others.some((other) => other.toLowerCase().startsWith(query) || other.toLowerCase().includes(`.${query}`))) return 4;
    if (`_${entry.last}`.includes(`_${query}`)) return 5;
    return entry.whole.includes(query) ? 6 : -1;
  };
  // "layer norm" is layer_norm, F.gelu is nn.functional.gelu, and of x.cumsum the last part counts; else each word matches.
  const level = (entry, query) => {
    const full = query.replace(/^f\./, "nn.functional.");
    const last = rank(entry, full.replace(/^.*\.(?=.)/, ""));
    const ranks = [rank(entry, full), rank(entry, full.replace(/[\s-]+/g, "_")), last > 3 ? -1 : last].filter((one) => one >= 0);
    if (ranks.length) return Math.min(...ranks);
    const words = query.split(/\s+/);
    const levels = words.length > 1 ? words.map((word) => level(entry, word)) : [-1];
    return levels.includes(-1) ? -1 : 10 + Math.max(...levels);
  };
  const dtypeOf = (text) => text.toLowerCase().split(/\s+/).map((word) => dtypes[word.replace(/^torch\./, "")]).find(Boolean);
  // Everything whose name begins so, and as much of the rest as fits on a screen or two.
  const search = (text) => {
    const words = text.trim().toLowerCase().replace(/\(.*mode\s*=\s*["']([\w-]+).*/, " $1").replace(/\(.*/, "").split(/\s+/);
    const names = words.filter((word) => words.length === 1 || !dtypeOf(word));
    const query = names.join(" ").replace(/^torch\.(ops\.aten\.)?/, "").replace(/^(\w+::\w+)\..*/, "$1");
    if (!query || !entries) return [];
    // A dtype alone: the operators that run natively, but not in this dtype.
    const differs = (entry) => (entry.beside === "native" && entry.states[dtypeOf(query)] ? 5 : -1);
    const hits = entries.map((entry) => [Math.max(level(entry, query), differs(entry)), entry]).filter(([rank]) => rank >= 0);
    hits.sort(([a, one], [b, other]) => a - b || one.kind - other.kind
      || one.last.length - other.last.length || (one.last < other.last ? -1 : 1));
    const prefixes = query.length > 2 ? hits.filter(([level, one]) => level <= 3 && one.kind === 0).length : 0;
    const operators = hits.filter(([level, one]) => level <= 3 && one.kind === 0);
    const others = hits.filter(([level, one]) => level > 3 || one.kind !== 0);
    const some = [...operators, ...others].sort(([a], [b]) => a - b);
    return some.slice(0, Math.max(FEW, prefixes + FEW / 3)).map(([, entry]) => entry);
  };
  window.opcheckSearch = (text) => search(text).map((entry) => entry.name);

  const WORDS = {
    native: "native", fallback_internal: "CPU, inside the kernel", fallback_always: "CPU fallback, always",
    native_wrong: "native, wrong for some inputs", fallback_env: "CPU fallback, with the variable", unsupported: "unsupported", unknown: "unknown",
  };
  const row = (entry, dtype) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    const name = document.createElement("span");
    const also = document.createElement("span");
    link.href = top + entry.address;
    name.className = "name";
    name.textContent = entry.name;
    const state = entry.states[dtype] || entry.beside;
    const word = WORDS[state];
    also.className = word ? `also state s-${state}` : "also";
    also.textContent = word ? `${dtype ? `${dtype}: ` : ""}${word}` : `${kinds[entry.kind]}: ${state}`;
    link.append(name, also);
    item.append(link);
    return item;
  };
  const show = () => {
    const query = input.value.trim();
    const hits = search(query);
    list.replaceChildren(...hits.map((entry) => row(entry, dtypeOf(query))));
    list.hidden = !query || !entries;
    if (!hits.length) {
      const item = document.createElement("li");
      item.className = "also";
      item.textContent = "Nothing of that name. The command opcheck op NAME tries more spellings.";
      list.append(item);
    }
    if (!query || !entries) found.textContent = "";
    else found.textContent = hits.length ? `${hits.length} results` : "nothing of that name";
  };
  const close = () => { list.hidden = true; };

  input.addEventListener("focus", load);
  input.addEventListener("input", () => { load(); show(); });
  input.form.addEventListener("submit", (event) => {
    const first = list.querySelector("a");
    if (first && input.value.trim()) { event.preventDefault(); first.click(); }
  });
  input.form.addEventListener("keydown", (event) => {
    const stops = [input, ...list.querySelectorAll("a")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && !list.hidden) {
      const place = stops.indexOf(document.activeElement) + step;
      event.preventDefault();
      if (stops[place]) stops[place].focus();
    } else if (event.key === "Escape") { close(); input.focus(); }
  });
  input.form.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !input.form.contains(event.relatedTarget)) close();
  });
  document.addEventListener("click", (event) => { if (!input.form.contains(event.target)) close(); });
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof Element && event.target.closest("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); input.focus(); input.select(); }
  });
  if (document.activeElement === input) load();
})();
