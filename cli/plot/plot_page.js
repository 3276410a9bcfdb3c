// Draws each chart into its figure from `charts`: {name: {unit, runs: [{run, x, y, bad}]}},
// where `run` is an index of `runs`: [{name, colour}]. `view` alone determines what is shown:
// draw() is a function of both.
const view = {log: false, smoothing: 0, hidden: new Set(), from: -Infinity, to: Infinity};
const kHeight = 240, kLeft = 64, kRight = 12, kTop = 10, kBottom = 26;

// Multiples of 1, 2 or 5 times a power of ten, about `count` values between low and high.
function roundTicks(low, high, count) {
  // Closer doubles have no round numbers between them.
  if (!(high - low > 1e-9 * Math.max(Math.abs(low), Math.abs(high)))) return [low];
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find(times => times * power >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) ticks.push(i * step);
  return ticks;
}

function logTicks(low, high) {
  const ticks = [], many = Math.log10(high / low) > 3;
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power)
    for (const times of many ? [1] : [1, 2, 5]) {
      const tick = times * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  return ticks.length > 1 ? ticks : [low, high];
}

function label(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size < 1e-3 || size >= 1e6) return value.toExponential(2).replace(/\.?0+e/, 'e');
  return String(Number(value.toPrecision(5)));
}

// As in TensorBoard: an exponential mean, divided by its total weight so far.
function smoothed(values, weight) {
  let mean = 0, part = 1;
  return values.map(value => {
    mean = mean * weight + (1 - weight) * value;
    part *= weight;
    return weight > 0 ? mean / (1 - part) : value;
  });
}

function shown(chart) {
  return chart.runs.filter(run => !view.hidden.has(run.run)).map(run => {
    const y = smoothed(run.y, view.smoothing), points = [], raw = [];
    run.x.forEach((x, i) => {
      if (x < view.from || x > view.to || (view.log && !(y[i] > 0 && run.y[i] > 0))) return;
      points.push([x, y[i]]);
      raw.push([x, run.y[i]]);
    });
    return {...run, points, raw, bad: run.bad.filter(x => x >= view.from && x <= view.to)};
  });
}

function draw(figure) {
  const name = figure.dataset.chart, svg = figure.querySelector('svg'), width = Math.max(svg.clientWidth, 200);
  const list = shown(charts[name]);
  const ys = list.flatMap(run => (view.smoothing > 0 ? [...run.points, ...run.raw] : run.points).map(point => point[1]));
  const xs = list.flatMap(run => [...run.points.map(point => point[0]), ...run.bad]);
  const least = (values, start) => values.reduce((a, b) => Math.min(a, b), start);
  const most = (values, start) => values.reduce((a, b) => Math.max(a, b), start);
  let x0 = least(xs, Infinity), x1 = most(xs, -Infinity), y0 = least(ys, Infinity), y1 = most(ys, -Infinity);
  if (!(x1 >= x0)) x0 = x1 = 0;
  if (!(y1 >= y0)) y0 = y1 = view.log ? 1 : 0;
  const scale = value => view.log ? Math.log10(value) : value;
  const part = (value, from, to) => to > from ? (value - from) / (to - from) : 0.5;
  const atX = x => kLeft + part(x, x0, x1) * (width - kLeft - kRight);
  const atY = y => kTop + (1 - part(scale(y), scale(y0), scale(y1))) * (kHeight - kTop - kBottom);
  const shape = (kind, values, text) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', kind);
    for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    svg.appendChild(made);
    return made;
  };
  svg.replaceChildren();
  svg.setAttribute('viewBox', `0 0 ${width} ${kHeight}`);
  svg.style.height = kHeight + 'px';
  for (const y of view.log ? logTicks(y0, y1) : roundTicks(y0, y1, 5)) {
    shape('line', {class: 'grid', x1: kLeft, x2: width - kRight, y1: atY(y), y2: atY(y)});
    shape('text', {class: 'tick-y', x: kLeft - 6, y: atY(y) + 4, 'text-anchor': 'end'}, label(y));
  }
  for (const x of roundTicks(x0, x1, Math.max(2, Math.floor(width / 120))).filter(Number.isInteger))
    shape('text', {class: 'tick-x', x: atX(x), y: kHeight - 8, 'text-anchor': 'middle'}, label(x));
  const line = (run, points, kind) => {
    const colour = runs[run.run].colour, at = points.map(([x, y]) => atX(x).toFixed(1) + ',' + atY(y).toFixed(1));
    shape('polyline', {class: kind, stroke: colour, points: at.join(' ')});
    if (at.length === 1) shape('circle', {r: 3, fill: colour, cx: atX(points[0][0]), cy: atY(points[0][1])});
  };
  for (const run of list) {
    if (view.smoothing > 0) line(run, run.raw, 'raw');
    line(run, run.points, 'line');
    for (const x of run.bad) {
      const mark = shape('line', {x1: atX(x), x2: atX(x), y1: kHeight - kBottom, y2: kHeight - kBottom + 6, stroke: '#dc2626'});
      const title = document.createElementNS('http://www.w3.org/2000/svg', 'title');
      mark.appendChild(title).textContent = `step ${x} is not finite`;
    }
  }
  const last = list.filter(run => run.points.length).map(run => `${runs[run.run].name} ends at ${label(run.points.at(-1)[1])}`);
  svg.setAttribute('aria-label', `${name}, steps ${label(x0)} to ${label(x1)}: ${last.join(', ') || 'no values'}`);
  figure.scaleOf = {list, x0, x1, atX, toStep: x => x0 + (x - kLeft) / (width - kLeft - kRight) * (x1 - x0),
    hair: shape('line', {class: 'hair', y1: kTop, y2: kHeight - kBottom, visibility: 'hidden'}),
    box: shape('rect', {class: 'box', y: kTop, height: kHeight - kTop - kBottom, width: 0})};
}

const figures = [...document.querySelectorAll('figure')];
const drawAll = () => figures.forEach(draw);

// Shows the values of all runs at the points nearest to `step`; returns the step of the nearest one.
function point(figure, step) {
  const {list, atX, hair} = figure.scaleOf, words = [];
  let best = null;
  for (const run of list) {
    const near = run.points.reduce((a, b) => a && Math.abs(a[0] - step) <= Math.abs(b[0] - step) ? a : b, null);
    if (!near) continue;
    if (best === null || Math.abs(near[0] - step) < Math.abs(best - step)) best = near[0];
    words.push(`${runs[run.run].name}: step ${near[0]}, ${near[1]}`);
  }
  if (best === null) return null;
  hair.setAttribute('x1', atX(best));
  hair.setAttribute('x2', atX(best));
  hair.setAttribute('visibility', 'visible');
  figure.querySelector('.value').textContent = words.join('   ');
  return best;
}

for (const figure of figures) {
  const svg = figure.querySelector('svg');
  let from = null, at = null;  // where a drag began (pixels); the step that is selected by the keys
  const pixel = event => event.clientX - svg.getBoundingClientRect().left;
  svg.addEventListener('pointerdown', event => { from = pixel(event); });
  svg.addEventListener('pointermove', event => {
    at = point(figure, figure.scaleOf.toStep(pixel(event)));
    if (from === null || event.pointerType === 'touch') return;
    const {box} = figure.scaleOf;
    box.setAttribute('x', Math.min(from, pixel(event)));
    box.setAttribute('width', Math.abs(pixel(event) - from));
  });
  svg.addEventListener('pointerup', event => {
    const ends = [from, pixel(event)].map(figure.scaleOf.toStep).sort((a, b) => a - b);
    const wide = from !== null && Math.abs(pixel(event) - from) > 8 && event.pointerType !== 'touch';
    from = null;
    if (wide) show({from: ends[0], to: ends[1]});
  });
  svg.addEventListener('pointerleave', () => {
    from = null;
    figure.scaleOf.hair.setAttribute('visibility', 'hidden');
    figure.scaleOf.box.setAttribute('width', 0);
    figure.querySelector('.value').textContent = '';
  });
  svg.addEventListener('dblclick', () => show({from: -Infinity, to: Infinity}));
  svg.addEventListener('keydown', event => {
    const {x0, x1} = figure.scaleOf, stride = Math.max(1, Math.round((x1 - x0) / 50));
    if (event.key === 'Escape') show({from: -Infinity, to: Infinity});
    if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
    event.preventDefault();
    const now = at === null ? x0 : at + (event.key === 'ArrowRight' ? stride : -stride);
    at = point(figure, Math.min(x1, Math.max(x0, now)));
  });
}

// The address stores the view, so that a reload or a link shows the same.
function show(change) {
  Object.assign(view, change);
  const kept = {log: view.log, smoothing: view.smoothing, hidden: [...view.hidden]};
  if (Number.isFinite(view.from)) Object.assign(kept, {from: view.from, to: view.to});
  try { history.replaceState(null, '', '#' + encodeURIComponent(JSON.stringify(kept))); } catch { /* a browser that keeps a file's address */ }
  reflect();
}

function reflect() {
  document.getElementById('log').checked = view.log;
  document.getElementById('smoothing').value = view.smoothing;
  document.getElementById('weight').textContent = view.smoothing.toFixed(2);
  document.getElementById('whole').disabled = !Number.isFinite(view.from);
  document.querySelectorAll('input[data-run]').forEach(box => { box.checked = !view.hidden.has(Number(box.dataset.run)); });
  drawAll();
}

try {
  const {hidden = [], ...kept} = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  Object.assign(view, kept, {hidden: new Set(hidden)});
} catch { /* no address, or another page's */ }
document.getElementById('log').addEventListener('change', event => show({log: event.target.checked}));
document.getElementById('smoothing').addEventListener('input', event => show({smoothing: Number(event.target.value)}));
document.getElementById('whole').addEventListener('click', () => show({from: -Infinity, to: Infinity}));
document.querySelectorAll('input[data-run]').forEach(box => box.addEventListener('change', () => {
  view.hidden[box.checked ? 'delete' : 'add'](Number(box.dataset.run));
  show({});
}));
addEventListener('resize', drawAll);
reflect();
