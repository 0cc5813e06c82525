"use strict";
// Values under the mouse and the arrow keys, switches for series and instance counts, one point in place of all.
(() => {
  const root = document.documentElement;
  const tip = document.getElementById("tip");
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  root.classList.add("js");

  function show(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const wide = root.clientWidth + scrollX;
    tip.style.left = `${Math.max(scrollX, Math.min(x + scrollX + 12, wide - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + scrollY + 14}px`;
  }
  function hide() { tip.hidden = true; }

  // From the window's pixels to the drawing's own, and back.
  function inside(svg, event) {
    return new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  }
  function outside(svg, x, y) { return new DOMPoint(x, y).matrixTransform(svg.getScreenCTM()); }

  const isShown = (mark) => !mark.closest(".hidden, .hidden-n");

  function marked(svg) {
    const marks = all(".m[data-x]", svg).filter((mark) => mark.querySelector("title"));
    for (const mark of marks) {
      mark.said = mark.querySelector("title").textContent;
      mark.querySelector("title").remove(); // else the browser shows it a second time
      mark.at = { x: Number(mark.dataset.x), y: Number(mark.dataset.y) };
    }
    return marks;
  }

  function points(svg) {
    const marks = marked(svg);
    if (!marks.length) return;
    let on = null;
    const choose = (mark) => {
      if (on) on.classList.remove("on");
      on = mark;
      if (!mark) return hide();
      mark.classList.add("on");
      const at = outside(svg, mark.at.x, mark.at.y);
      show(mark.said, at.x, at.y);
    };
    svg.addEventListener("pointermove", (event) => {
      const at = inside(svg, event);
      let best = null, least = 30;
      for (const mark of marks) {
        const box = mark.getBBox();
        const dx = Math.max(box.x - at.x, 0, at.x - box.x - box.width);
        const dy = Math.max(box.y - at.y, 0, at.y - box.y - box.height);
        if (Math.hypot(dx, dy) < least && isShown(mark)) [best, least] = [mark, Math.hypot(dx, dy)];
      }
      choose(best);
    });
    svg.addEventListener("pointerleave", () => choose(null));
    svg.addEventListener("blur", () => choose(null));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") choose(null);
      if (!step) return;
      event.preventDefault();
      const shown = marks.filter(isShown);
      const next = (shown.indexOf(on) + step + shown.length) % shown.length;
      choose(shown[on ? next : 0]);
    });
  }

  // Panels keep their values in their paths: a vertex is turned back into a value by the panel's axis.
  function vertices(path) {
    return [...path.getAttribute("d").matchAll(/[ML]([-\d.]+) ([-\d.]+)/g)].map((m) => ({ x: Number(m[1]), y: Number(m[2]) }));
  }
  function value(panel, y) {
    const { low, high, log, top, bottom } = panel.dataset;
    const share = (Number(bottom) - y) / (Number(bottom) - Number(top));
    if (log === "true") return Number(low) * Math.pow(Number(high) / Number(low), share);
    return Number(low) + share * (Number(high) - Number(low));
  }
  function panels(svg) {
    const lines = all(".panel", svg).flatMap((panel) =>
      all("[data-name]", panel).map((path) => ({ panel, name: path.dataset.name, path, at: null })));
    const [left, right] = [Number(svg.dataset.left), Number(svg.dataset.right)];
    const [t0, t1] = [Number(svg.dataset.t0), Number(svg.dataset.t1)];
    const cross = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cross.setAttribute("class", "cross hidden");
    svg.append(cross);
    let x = left;
    const look = (to) => {
      x = Math.max(left, Math.min(right, to));
      const bottom = svg.viewBox.baseVal.height - 40;
      cross.setAttribute("d", `M${x} 16V${bottom}`);
      cross.classList.remove("hidden");
      const said = [`${(t0 + (x - left) / (right - left) * (t1 - t0)).toFixed(1)} s`];
      for (const line of lines) {
        line.at ??= vertices(line.path);
        const near = line.at.reduce((best, at) => (!best || Math.abs(at.x - x) < Math.abs(best.x - x) ? at : best), null);
        if (near && Math.abs(near.x - x) < 25) {
          said.push(`${line.panel.dataset.title}, ${line.name}: ${Number(value(line.panel, near.y).toPrecision(3))}`);
        }
      }
      const at = outside(svg, x, 20);
      show(said.join("\n"), at.x, at.y);
    };
    const end = () => { cross.classList.add("hidden"); hide(); };
    svg.addEventListener("pointermove", (event) => look(inside(svg, event).x));
    svg.addEventListener("pointerleave", end);
    svg.addEventListener("blur", end);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 8, ArrowLeft: -8 }[event.key];
      if (event.key === "Escape") end();
      if (!step) return;
      event.preventDefault();
      look(x + step);
    });
  }

  function toggles(input) {
    input.addEventListener("change", () => {
      const named = (part) => part.dataset.series === input.dataset.toggles;
      all("[data-series]", input.closest("figure")).filter(named)
        .forEach((part) => part.classList.toggle("hidden", !input.checked));
    });
  }
  function filters(input) {
    input.addEventListener("change", () => {
      all(`tr[data-instances="${input.dataset.instances}"], g[data-instances="${input.dataset.instances}"]`)
        .forEach((part) => { part.classList.toggle("hidden-n", !input.checked); });
    });
  }

  function choice(box) {
    const select = box.querySelector("select");
    const options = all(":scope > .option", box);
    const open = (id) => {
      for (const option of options) option.open = option.id === id;
      select.value = id;
    };
    select.addEventListener("change", () => open(select.value));
    const named = () => options.find((option) => option.id === decodeURIComponent(location.hash.slice(1)));
    const follow = () => { if (named()) { open(named().id); named().scrollIntoView(); } };
    addEventListener("hashchange", follow);
    if (options.length) open(options[0].id);
    follow();
  }

  all("svg.plot").forEach((svg) => (svg.classList.contains("panels") ? panels : points)(svg));
  all("[data-toggles]").forEach(toggles);
  all(".filter input").forEach(filters);
  all(".choice").forEach(choice);
})();
