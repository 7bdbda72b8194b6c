"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const number = (value) => value.toLocaleString("en-US");
  const size = (bytes) => {
    let value = bytes;
    for (const unit of ["bytes", "KiB", "MiB", "GiB"]) {
      if (value < 1024) return unit === "bytes" ? `${value} bytes` : `${value.toFixed(1)} ${unit}`;
      value /= 1024;
    }
    return `${value.toFixed(1)} TiB`;
  };

  // ---- the buttons that copy code, and the folded sections that the navigation opens ----
  for (const button of navigator.clipboard ? document.querySelectorAll(".copy") : []) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "copied";
    });
  }
  const unfold = () => {
    const fold = document.querySelector(`${/^#[\w-]+$/.test(location.hash) ? location.hash : "#findings"} > .fold`);
    if (fold) fold.open = true;
  };
  window.addEventListener("hashchange", unfold);
  unfold();

  // ---- the operators: filter and order ----
  const rows = [...document.querySelectorAll(".operator")];
  const filterRows = () => {
    const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const status = $("status").value;
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = (!status || row.dataset.status === status) && words.every((word) => text.includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    $("count").textContent = `${shown} of ${rows.length}`;
  };
  const orders = {
    calls: (a, b) => Number(b.dataset.calls) - Number(a.dataset.calls),
    name: (a, b) => (a.dataset.name < b.dataset.name ? -1 : 1),
  };
  const orderRows = () => {
    const by = orders[$("order").value];
    $("rows").replaceChildren(...(by ? [...rows].sort(by) : rows));
  };
  if (rows.length) {
    const labels = new Map(rows.map((row) => [row.dataset.status, row.querySelector(".dot").textContent]));
    for (const [value, label] of labels) $("status").append(make("option", { value }, label));
    $("filter").addEventListener("input", filterRows);
    $("status").addEventListener("input", filterRows);
    $("order").addEventListener("input", orderRows);
    document.querySelector(".bar.script").hidden = false;
    filterRows();
  }

  // ---- the graph ----
  const total = data.calls.length;
  if (!total) return;
  $("drawing").hidden = false;
  const canvas = $("canvas");
  const pen = canvas.getContext("2d");
  const ROW = 15, HEAD = 30, WIDE = 240, GAP = 16, LANE = 84, MOST = 64;
  const group = (i) => data.groups[data.calls[i][0]];
  const moduleOf = (i) => data.modules[data.calls[i][2]];
  const placeOf = (i) => group(i).places[data.calls[i][1]];
  const short = (op) => op.replace(/^aten::/, "");
  const readers = data.calls.map(() => []);
  data.calls.forEach((call, i) => call[4].forEach((source) => readers[source].push(i)));

  // A card: a stretch of calls of one module, cut to so many names that the cards can be told apart, in one region.
  const cut = (i, depth) => moduleOf(i).split(".").slice(0, depth).join(".");
  const stretches = (depth) => {
    const found = [];
    for (let i = 0; i < total; i += 1) {
      const name = cut(i, depth), region = data.calls[i][3], last = found[found.length - 1];
      if (last && last.name === name && last.region === region && i - last.first < MOST) last.count += 1;
      else found.push({ name, region, side: group(i).side, first: i, count: 1 });
    }
    return found;
  };
  const wanted = Math.max(30, total / 14);
  let cards = stretches(1);
  for (let depth = 2; depth < 9; depth += 1) {
    const finer = stretches(depth);
    if (finer.length > wanted) break;
    cards = finer;
  }
  const cardOf = new Array(total);
  cards.forEach((card, c) => {
    card.height = HEAD + card.count * ROW + 6;
    for (let k = 0; k < card.count; k += 1) cardOf[card.first + k] = c;
  });
  let extent = { width: 1, height: 1 };
  const place = (columns) => {
    const all = cards.reduce((sum, card) => sum + card.height + GAP, 0);
    const tall = Math.max(all / columns, ...cards.map((card) => card.height));
    let x = 0, y = 0, height = 0;
    for (const card of cards) {
      if (y && y + card.height > tall * 1.04) { x += WIDE + LANE; y = 0; }
      card.x = x; card.y = y;
      y += card.height + GAP;
      height = Math.max(height, y - GAP);
    }
    extent = { width: x + WIDE, height };
  };
  const box = () => ({ width: canvas.clientWidth, height: canvas.clientHeight });
  const arrange = () => {
    const { width, height } = box();
    let best = 1, most = 0;
    for (let columns = 1; columns <= Math.min(60, cards.length); columns += 1) {
      place(columns);
      const scale = Math.min(width / (extent.width + 40), height / (extent.height + 40));
      if (scale > most) { most = scale; best = columns; }
    }
    place(best);
  };

  let view = { x: 0, y: 0, scale: 1 };
  let chosen = -1;
  let matches = new Set();
  let colors = {};
  const readColors = () => {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["bg", "card", "text", "soft", "line", "accent", "mps", "cpu", "unknown", "raises", "chosen"]) {
      colors[name] = style.getPropertyValue(`--${name}`).trim();
    }
  };
  const spot = (i) => {
    const card = cards[cardOf[i]];
    return { x: card.x, y: card.y + HEAD + (i - card.first) * ROW + ROW / 2 };
  };
  const curve = (from, to) => {
    const a = spot(from), b = spot(to);
    const x = a.x + WIDE;
    pen.moveTo(x, a.y);
    if (b.x > a.x) pen.bezierCurveTo(x + LANE * 0.6, a.y, b.x - LANE * 0.6, b.y, b.x, b.y);
    else pen.bezierCurveTo(x + LANE * 0.7, a.y, x + LANE * 0.7, b.y, b.x + WIDE, b.y);
  };
  const between = [];
  {
    const seen = new Set();
    data.calls.forEach((call, i) => call[4].forEach((source) => {
      const pair = `${cardOf[source]} ${cardOf[i]}`;
      if (cardOf[source] !== cardOf[i] && !seen.has(pair)) { seen.add(pair); between.push([source, i]); }
    }));
  }
  const clip = (text, width, fromEnd) => {
    const whole = pen.measureText(text).width;
    if (whole <= width) return text;
    const fits = Math.max(1, Math.floor((text.length * width) / whole) - 1);
    return fromEnd ? `…${text.slice(text.length - fits)}` : `${text.slice(0, fits)}…`;
  };
  const MONO = "ui-monospace, SFMono-Regular, Menlo, monospace";

  const draw = () => {
    const ratio = window.devicePixelRatio || 1;
    const { width, height } = box();
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const { scale } = view;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = colors.card;
    pen.fillRect(0, 0, width, height);
    pen.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * view.x, ratio * view.y);
    const left = -view.x / scale, top = -view.y / scale;
    const right = left + width / scale, bottom = top + height / scale;

    pen.lineWidth = Math.min(1.2, 1 / scale);
    pen.strokeStyle = colors.soft;
    pen.globalAlpha = 0.38;
    pen.beginPath();
    for (const [from, to] of between) curve(from, to);
    pen.stroke();
    pen.globalAlpha = 1;

    for (const card of cards) {
      if (card.x > right || card.x + WIDE < left || card.y > bottom || card.y + card.height < top) continue;
      pen.fillStyle = colors.bg;
      pen.fillRect(card.x, card.y, WIDE, card.height);
      pen.fillStyle = colors[card.side];
      pen.globalAlpha = 0.16;
      pen.fillRect(card.x, card.y, WIDE, HEAD);
      pen.globalAlpha = 1;
      pen.fillRect(card.x, card.y, 4, card.height);
      pen.strokeStyle = card.side === "mps" ? colors.line : colors[card.side];
      pen.strokeRect(card.x, card.y, WIDE, card.height);
      const title = Math.min(Math.max(13, 9.5 / scale), HEAD * 0.8);
      if (title * scale > 5) {
        pen.font = `600 ${title}px system-ui, sans-serif`;
        pen.fillStyle = colors.text;
        pen.textBaseline = "middle";
        const tag = `${card.region} `, room = pen.measureText(tag).width;
        pen.fillText(tag, card.x + 10, card.y + HEAD / 2 + 1);
        pen.fillText(clip(card.name || "(no module)", WIDE - 16 - room, true), card.x + 10 + room, card.y + HEAD / 2 + 1);
      }
      const words = ROW * scale > 6.5;
      if (words) pen.font = `11px ${MONO}`;
      for (let k = 0; k < card.count; k += 1) {
        const i = card.first + k, y = card.y + HEAD + k * ROW;
        if (y > bottom || y + ROW < top) continue;
        if (matches.has(i)) {
          pen.fillStyle = colors.chosen;
          pen.globalAlpha = 0.22;
          pen.fillRect(card.x + 4, y, WIDE - 4, ROW);
          pen.globalAlpha = 1;
        }
        if (words) {
          pen.fillStyle = card.side === "mps" ? colors.text : colors[card.side];
          pen.fillText(clip(short(group(i).op), WIDE - 16), card.x + 11, y + ROW / 2 + 1);
        } else {
          pen.fillStyle = colors[card.side];
          pen.globalAlpha = card.side === "mps" ? 0.55 : 0.95;
          const length = Math.min(WIDE - 22, 26 + short(group(i).op).length * 6);
          pen.fillRect(card.x + 11, y + 4, length, ROW - 8);
          pen.globalAlpha = 1;
        }
      }
    }
    if (chosen >= 0) {
      const { x, y } = spot(chosen);
      pen.lineWidth = Math.max(1.6, 1.6 / scale);
      pen.strokeStyle = colors.accent;
      pen.beginPath();
      for (const source of data.calls[chosen][4]) curve(source, chosen);
      pen.stroke();
      pen.strokeStyle = colors.chosen;
      pen.beginPath();
      for (const reader of readers[chosen]) curve(chosen, reader);
      pen.stroke();
      pen.lineWidth = Math.max(2, 2.4 / scale);
      pen.strokeRect(x + 2, y - ROW / 2, WIDE - 4, ROW);
    }
  };
  let waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  };

  const smallest = () => {
    const { width, height } = box();
    return Math.min(width / (extent.width + 40), height / (extent.height + 40));
  };
  const fit = () => {
    const { width, height } = box();
    const scale = Math.min(1.2, smallest());
    view = { scale, x: (width - extent.width * scale) / 2, y: (height - extent.height * scale) / 2 };
    redraw();
  };
  const zoom = (factor, x, y) => {
    const scale = Math.min(4, Math.max(smallest() * 0.7, view.scale * factor));
    const k = scale / view.scale;
    view = { scale, x: x - (x - view.x) * k, y: y - (y - view.y) * k };
    redraw();
  };
  const zoomMiddle = (factor) => zoom(factor, box().width / 2, box().height / 2);

  const reference = (i) => {
    const button = make("button", { type: "button" }, `${i} ${short(group(i).op)}`);
    button.addEventListener("click", () => choose(i, true));
    return make("li", {}, button, moduleOf(i) ? ` ${moduleOf(i)}` : "");
  };
  const FEW = 8;
  const listed = (box_, title, items) => {
    if (!items.length) return;
    box_.append(make("h4", {}, title), make("ul", {}, ...items.slice(0, FEW)));
    if (items.length > FEW) box_.append(make("p", { class: "small" }, `and ${items.length - FEW} more`));
  };
  const describe = () => {
    const side = $("detail");
    if (chosen < 0) {
      const counts = {};
      data.calls.forEach((_, i) => { counts[group(i).side] = (counts[group(i).side] || 0) + 1; });
      const names = { mps: "native", cpu: "on the CPU", unknown: "unknown", raises: "raising" };
      side.replaceChildren(
        make("p", {}, "Choose a call to see its line, its tensors and the evidence."),
        make("ul", {}, ...Object.keys(names).filter((name) => counts[name]).map((name) =>
          make("li", { class: `dot ${name}` }, `${number(counts[name])} ${names[name]}`))));
      return;
    }
    const call = data.calls[chosen], of = group(chosen), [line, func, text, phase] = placeOf(chosen);
    const found = [
      make("h3", {}, of.op),
      make("p", { class: `dot ${of.side}` }, of.label),
      make("p", { class: "small" }, `call ${number(chosen)} (0 to ${number(total - 1)}), region ${call[3]}` +
        (phase === "forward" ? "" : `, ${phase}`)),
      make("p", {}, of.because),
    ];
    side.replaceChildren(...found);
    if (of.prints) listed(side, "prints", [make("li", {}, make("samp", {}, of.prints))]);
    listed(side, phase === "backward" ? "line of the forward call" : "line", [
      make("li", {}, make("span", { class: "where" }, line || "(no line of the program)", func ? ` in ${func}` : "")),
      ...(text ? [make("li", {}, make("pre", {}, make("code", {}, text)))] : []),
    ]);
    if (moduleOf(chosen)) listed(side, "module", [make("li", {}, moduleOf(chosen))]);
    if (call[7] || call[9]) {
      listed(side, "copies", [make("li", {}, `${call[7]} to the CPU (${size(call[8])}), ${call[9]} back (${size(call[10])})`)]);
    }
    listed(side, "tensors in", call[5].map((spec) => make("li", {}, make("code", {}, data.specs[spec]))));
    listed(side, "tensors out", call[6].map((spec) => make("li", {}, make("code", {}, data.specs[spec]))));
    listed(side, "reads from", call[4].map(reference));
    listed(side, "read by", readers[chosen].map(reference));
    listed(side, `evidence (${of.confidence})`, of.evidence.map((entry) => make("li", { class: "small" }, entry)));
    listed(side, "statements", of.statements.map((name) => make("li", {}, name)));
    side.scrollTop = 0;
  };
  const choose = (i, show) => {
    chosen = i;
    describe();
    if (show && i >= 0) {
      const { width, height } = box();
      const scale = Math.max(view.scale, 0.8);
      const { x, y } = spot(i);
      view = { scale, x: width / 2 - (x + WIDE / 2) * scale, y: height / 2 - y * scale };
    }
    // Not location.hash: that would scroll, and fill the history.
    if (i >= 0) history.replaceState(null, "", `#call=${i}`);
    redraw();
  };
  const odd = data.calls.map((_, i) => i).filter((i) => group(i).side !== "mps");
  const step = (list, back) => {
    if (!list.length) return;
    const found = back ? list.filter((i) => i < chosen).pop() : list.find((i) => i > chosen);
    choose(found ?? (back ? list[list.length - 1] : list[0]), true);
  };
  const at = (x, y) => {
    const gx = (x - view.x) / view.scale, gy = (y - view.y) / view.scale;
    const card = cards.find((c) => gx >= c.x && gx <= c.x + WIDE && gy >= c.y && gy <= c.y + c.height);
    if (!card) return -1;
    const k = Math.floor((gy - card.y - HEAD) / ROW);
    return card.first + Math.min(card.count - 1, Math.max(0, k));
  };

  // ---- mouse, fingers, keys ----
  const pointers = new Map();
  let moved = 0;
  const where = (event) => {
    const area = canvas.getBoundingClientRect();
    return { x: event.clientX - area.left, y: event.clientY - area.top };
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, where(event));
    if (pointers.size === 1) moved = 0;
    canvas.classList.add("moving");
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const now = where(event);
    if (pointers.size === 1) {
      view.x += now.x - before.x;
      view.y += now.y - before.y;
      moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
      redraw();
    } else {
      const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
      const apart = (p) => Math.hypot(p.x - other.x, p.y - other.y) || 1;
      zoom(apart(now) / apart(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
      moved = 99;
    }
    pointers.set(event.pointerId, now);
  });
  const lift = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    if (!pointers.size) canvas.classList.remove("moving");
    if (event.type === "pointerup" && moved < 5) {
      const { x, y } = where(event);
      choose(at(x, y), false);
    }
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("wheel", (event) => {
    // Until the drawing was clicked, the wheel scrolls the page.
    if (document.activeElement !== canvas && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const { x, y } = where(event);
    zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), x, y);
  }, { passive: false });
  const cardStep = (by) => {
    const c = chosen < 0 ? 0 : Math.min(cards.length - 1, Math.max(0, cardOf[chosen] + by));
    choose(cards[c].first, true);
  };
  const keys = {
    ArrowRight: () => choose(Math.min(total - 1, chosen + 1), true),
    ArrowLeft: () => choose(Math.max(0, chosen - 1), true),
    ArrowDown: () => cardStep(1),
    ArrowUp: () => cardStep(-1),
    n: () => step(odd, false), N: () => step(odd, true),
    "+": () => zoomMiddle(1.3), "=": () => zoomMiddle(1.3), "-": () => zoomMiddle(1 / 1.3),
    0: fit,
    Escape: () => canvas.blur(),
  };
  canvas.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  $("in").addEventListener("click", () => zoomMiddle(1.4));
  $("out").addEventListener("click", () => zoomMiddle(1 / 1.4));
  $("fit").addEventListener("click", fit);
  $("next").addEventListener("click", () => step(odd, false));
  $("previous").addEventListener("click", () => step(odd, true));
  $("next").disabled = $("previous").disabled = !odd.length;
  const search = () => {
    const text = $("find").value.trim().toLowerCase();
    matches = new Set(text ? data.calls.map((_, i) => i).filter((i) =>
      `${group(i).op} ${moduleOf(i)} ${placeOf(i).join(" ")}`.toLowerCase().includes(text)) : []);
    $("found").textContent = text ? `${number(matches.size)} found (Enter: next)` : "";
    redraw();
  };
  $("find").addEventListener("input", search);
  $("find").addEventListener("keydown", (event) => {
    if (event.key === "Enter") step([...matches], event.shiftKey);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); redraw(); });
  new ResizeObserver(() => { arrange(); if (chosen >= 0) choose(chosen, true); else fit(); }).observe(canvas);
  const follow = () => {
    const asked = /^#call=(\d+)$/.exec(location.hash);
    if (!asked || Number(asked[1]) >= total) return;
    choose(Number(asked[1]), true);
    $("graph").scrollIntoView();
  };
  window.addEventListener("hashchange", follow);

  readColors();
  arrange();
  fit();
  describe();
  follow();
  // Milliseconds from the navigation to a page that can be used: what the test of its speed reads.
  draw();
  document.documentElement.dataset.regions = String(new Set(cards.map((card) => card.region)).size);
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
})();
