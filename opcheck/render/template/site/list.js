"use strict";
// Filters of a long list: data-filters names the fields, and each data-item has its words in data-FIELD.
(() => {
  const list = document.querySelector("[data-filters]");
  if (!list) return;
  const items = [...list.querySelectorAll("[data-item]")];
  // A phone has room for half as many.
  const few = Number(list.dataset.few) / (matchMedia("(max-width: 46rem)").matches ? 2 : 1);
  let most = few;

  const make = (tag, properties, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };
  const target = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const words = (item, field) => (item.dataset[field] || "").split(" ").filter(Boolean);
  const selects = list.dataset.filters.split(" ").map((field) => {
    const values = [...new Set(items.flatMap((item) => words(item, field)))].filter((value) => value !== "every");
    const numbered = values.every((value) => /\d/.test(value));
    values.sort((a, b) => (numbered ? -1 : 1) * a.localeCompare(b, "en", { numeric: true }));
    const options = values.map((value) => make("option", { value, textContent: value.replaceAll("_", " ") }));
    return make("select", { name: field }, make("option", { value: "", textContent: "any" }), ...options);
  });
  const text = make("input", { type: "search", name: "text", autocomplete: "off" });
  const count = make("p", { className: "small" });
  count.setAttribute("role", "status");
  const more = make("button", { type: "button" });
  const label = (name, field) => make("label", {}, make("span", { textContent: name }), field);
  const form = make("form", { className: "filters" }, label("contains", text), ...selects.map((select) => label(select.name, select)));
  form.setAttribute("aria-label", "Filter the list");

  const show = () => {
    const query = text.value.trim().toLowerCase();
    const chosen = selects.filter((select) => select.value);
    const fits = (item) => chosen.every((select) => words(item, select.name).some((word) => word === select.value || word === "every")) && item.textContent.toLowerCase().includes(query);
    const named = target();
    let fitting = 0;
    for (const item of items) {
      const fit = fits(item);
      fitting += fit;
      item.hidden = item !== named && !(fit && fitting <= most);
    }
    for (const section of list.querySelectorAll("section")) section.hidden = !section.querySelector("[data-item]:not([hidden])");
    const shown = Math.min(fitting, most);
    count.textContent = fitting ? `${shown.toLocaleString("en")} of ${fitting.toLocaleString("en")} shown` : "Nothing fits: choose any, or fewer letters.";
    more.hidden = shown === fitting;
    more.textContent = `Show all ${fitting.toLocaleString("en")}`;
  };
  const restart = () => {
    most = few;
    show();
  };
  form.addEventListener("input", restart);
  form.addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", () => {
    most = Infinity;
    show();
  });
  window.addEventListener("hashchange", show);
  list.prepend(form, count);
  list.append(more);
  show();
  // The browser went to an item before the items around it were hidden.
  target()?.scrollIntoView();
})();
