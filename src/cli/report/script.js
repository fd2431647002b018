'use strict';
// All pictures are visible without this script. It sorts tables, zooms into maps, and opens folded parts before printing.
for (const table of document.querySelectorAll('table.sorts')) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const down = head.getAttribute('aria-sort') === 'ascending';
      heads.forEach(other => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const key = row => row.cells[column].dataset.key ?? row.cells[column].textContent;
      const compare = head.classList.contains('n')
        ? (a, b) => Number(key(a)) - Number(key(b))
        : (a, b) => key(a).localeCompare(key(b), undefined, {numeric: true});
      const rows = [...table.tBodies[0].rows].sort(compare);
      table.tBodies[0].append(...(down ? rows.reverse() : rows));
    });
  });
}
for (const frame of document.querySelectorAll('.frame.zooms')) {
  const map = frame.querySelector('svg.map');
  const whole = map.viewBox.baseVal;
  const [width, height] = [whole.width, whole.height];
  let [x, y, w, h] = [0, 0, width, height];
  const show = () => {
    w = Math.min(w, width);
    h = Math.min(h, height);
    x = Math.max(0, Math.min(x, width - w));
    y = Math.max(0, Math.min(y, height - h));
    map.setAttribute('viewBox', [x, y, w, h].join(' '));
    for (const axis of frame.querySelectorAll('[data-extent]')) {
      const rows = axis.classList.contains('y');
      const [from, part, all] = rows ? [y, h, height] : [x, w, width];
      const extent = Number(axis.dataset.extent);
      const last = Math.ceil(Math.min(extent, (from + part) / all * extent)) - 1;
      axis.querySelector('.from').textContent = Math.floor(from / all * extent);
      axis.querySelector('.to').textContent = Math.max(0, last);
    }
  };
  const zoom = (by, cx = x + w / 2, cy = y + h / 2) => {
    const part = Math.max(by, 2 / w);
    const high = Math.max(by, 1 / h);
    x = cx - (cx - x) * part;
    y = cy - (cy - y) * high;
    w *= part;
    h *= high;
    show();
  };
  const at = event => {
    const box = map.getBoundingClientRect();
    return [x + (event.clientX - box.left) / box.width * w, y + (event.clientY - box.top) / box.height * h];
  };
  const bar = document.createElement('div');
  bar.className = 'zoom';
  const press = (text, label, act) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = text;
    button.setAttribute('aria-label', label);
    button.addEventListener('click', act);
    bar.append(button);
  };
  press('+', 'zoom in', () => zoom(0.5));
  press('\u2212', 'zoom out', () => zoom(2));
  press('all', 'show all', () => { [x, y, w, h] = [0, 0, width, height]; show(); });
  frame.before(bar);
  map.addEventListener('dblclick', event => zoom(0.5, ...at(event)));
  map.addEventListener('wheel', event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, ...at(event));
  }, {passive: false});
  let held = null;
  map.addEventListener('pointerdown', event => {
    if (w === width && h === height) return;
    held = at(event);
    map.setPointerCapture(event.pointerId);
  });
  map.addEventListener('pointermove', event => {
    if (!held) return;
    const now = at(event);
    x += held[0] - now[0];
    y += held[1] - now[1];
    show();
  });
  for (const end of ['pointerup', 'pointercancel']) map.addEventListener(end, () => { held = null; });
}
addEventListener('beforeprint', () => {
  for (const details of document.querySelectorAll('details')) details.open = true;
});
const open = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === 'DETAILS') target.open = true;
};
addEventListener('hashchange', open);
open();
