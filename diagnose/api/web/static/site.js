// What plain links and forms cannot: keys, looking again while a verdict is awaited, similar incidents in place.
"use strict";

const typing = (target) => target.closest("input, select, textarea, [contenteditable]") !== null;

function move(by) {
  const items = [...document.querySelectorAll("[data-item]")];
  if (items.length === 0) return;
  const now = items.indexOf(document.activeElement);
  const next = now === -1 ? (by > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, now + by));
  items[next].focus({ preventScroll: true });
  items[next].scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  const search = document.querySelector("[data-search]");
  if (event.key === "/" && search !== null) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "j" || event.key === "k") {
    event.preventDefault();
    move(event.key === "j" ? 1 : -1);
  }
});

// A link into the log also takes the keyboard there.
window.addEventListener("hashchange", () => {
  const target = document.querySelector(":target"); // decoded by the browser, whatever it is;
  const busy = document.activeElement !== null && typing(document.activeElement);
  if (target !== null && target.hasAttribute("tabindex") && !busy) target.focus({ preventScroll: true });
});

const again = document.querySelector("[data-again]");
if (again !== null) {
  const look = () => {
    const busy = document.hidden || (document.activeElement !== null && typing(document.activeElement));
    if (busy) setTimeout(look, 2000);
    else location.reload();
  };
  setTimeout(look, Number(again.dataset.again));
}

const place = document.querySelector("[data-load]");
if (place !== null) {
  const link = place.querySelector("a");
  fetch(link.href, { credentials: "same-origin" })
    .then((answer) => (answer.ok && !answer.redirected ? answer.text() : Promise.reject()))
    .then((text) => {
      const found = new DOMParser().parseFromString(text, "text/html").getElementById("loaded");
      if (found !== null) place.replaceWith(document.adoptNode(found));
    })
    .catch(() => {}); // the link stays
}
