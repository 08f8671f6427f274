// The dashboard, drawn by Grafana's own components without Grafana: each panel's questions are asked of Prometheus, and
// what comes back goes by Grafana's transformations and field overrides to the component of the panel's type.
import * as grafana from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, ThemeContext, TimeSeries } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { createRoot } from 'react-dom/client';
import { lastValueFrom } from 'rxjs';

const { FieldType, rangeUtil } = grafana;
const { prometheus, scrapes, theme: mode, ...given } = Object.fromEntries(new URLSearchParams(location.search));
const [WIDTH, from, to] = [given.width, given.from, given.to].map(Number);
const theme = grafana.createTheme({ colors: { mode } });
const [first, last] = [from, to].map((seconds) => grafana.dateTime(seconds * 1000));
const range = { from: first, to: last, raw: { from: first, to: last } };
const COLUMNS = 24, CELL = 30, GAP = 8;

// What Grafana's panels start from where the JSON says nothing.
const DEFAULTS = {
  timeseries: {
    color: { mode: 'palette-classic' },
    custom: { drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0, gradientMode: 'none',
      showPoints: 'auto', pointSize: 5, spanNulls: false, axisPlacement: 'auto', axisColorMode: 'text',
      scaleDistribution: { type: 'linear' }, stacking: { mode: 'none', group: 'A' }, thresholdsStyle: { mode: 'off' },
      barAlignment: 0, barWidthFactor: 0.6, hideFrom: { tooltip: false, viz: false, legend: false } },
  },
  stat: { color: { mode: 'thresholds' } },
  table: { color: { mode: 'thresholds' }, custom: { align: 'auto', cellOptions: { type: 'auto' }, inspect: false } },
};
const ALWAYS = { thresholds: { mode: 'absolute', steps: [{ color: 'green', value: null }] } };
const STANDARD = ['unit', 'min', 'max', 'decimals', 'color', 'displayName', 'noValue', 'thresholds', 'mappings'];

const same = (it) => it;
const option = (id) => ({ id, name: id, path: id.replace(/^custom\./, ''), isCustom: id.startsWith('custom.'),
  process: same, shouldApply: () => true });

function configured({ type, title, fieldConfig: { defaults, overrides } }, data) {
  const base = DEFAULTS[type];
  if (!base) throw new Error(`nothing here draws a panel of the type ${type}: ${title}`);
  const whole = { ...ALWAYS, ...base, ...defaults, custom: { ...base.custom, ...defaults.custom } };
  const overridden = overrides.flatMap(({ properties }) => properties.map(({ id }) => id));
  const ids = new Set([...STANDARD, ...Object.keys(whole.custom).map((key) => `custom.${key}`), ...overridden]);
  const fieldConfigRegistry = new grafana.FieldConfigOptionsRegistry(() => [...ids].map(option));
  const fieldConfig = structuredClone({ defaults: whole, overrides });
  const found = grafana.applyFieldOverrides(
    { data, fieldConfig, fieldConfigRegistry, replaceVariables: same, theme, timeZone: 'utc' });
  grafana.cacheFieldDisplayNames(found);
  return { data: found, fieldConfig };
}

async function asked(path, query) {
  const told = await (await fetch(`${prometheus}/api/v1/${path}?${new URLSearchParams(query)}`)).json();
  if (told.status !== 'success') throw new Error(`${query.query}: ${told.error}`);
  return told.data.result;
}

const number = (text) => (Number.isFinite(Number(text)) ? Number(text) : null); // no chart draws NaN or Inf

function series({ refId, legendFormat }, { metric: { __name__: name = 'Value', ...labels }, values }, interval) {
  const legend = legendFormat?.replace(/{{\s*(\w+)\s*}}/g, (_, label) => labels[label] ?? '') || undefined;
  return grafana.toDataFrame({ refId, fields: [
    { name: 'Time', type: FieldType.time, config: { interval }, values: values.map(([at]) => at * 1000) },
    { name, type: FieldType.number, labels, config: { displayNameFromDS: legend },
      values: values.map(([, value]) => number(value)) },
  ] });
}

function table({ refId }, found) {
  const columns = [...new Set(found.flatMap(({ metric }) => Object.keys(metric)))].sort();
  return grafana.toDataFrame({ refId, fields: [
    { name: 'Time', type: FieldType.time, values: found.map(({ value }) => value[0] * 1000) },
    ...columns.map((name) => ({ name, type: FieldType.string, values: found.map((each) => each.metric[name]) })),
    { name: 'Value', type: FieldType.number, values: found.map(({ value }) => number(value[1])) },
  ] });
}

async function frames(panel, target, width) {
  const least = [panel.interval, scrapes].filter(Boolean).map(rangeUtil.intervalToMs);
  const { intervalMs } = rangeUtil.calculateInterval(range, width, `${Math.max(...least)}ms`);
  const [step, every] = [intervalMs / 1000, rangeUtil.intervalToSeconds(scrapes)];
  const query = target.expr.replaceAll('$__rate_interval', `${Math.max(step + every, 4 * every)}s`)
    .replaceAll('$__interval', `${step}s`).replaceAll('$__range', `${Math.ceil(to - from)}s`).replaceAll('$job', '.*');
  if (target.instant) {
    const found = await asked('query', { query, time: to });
    if (target.format === 'table') return [table(target, found)];
    return found.map(({ metric, value }) => series(target, { metric, values: [value] }, intervalMs));
  }
  const [start, end] = [from, to].map((at) => Math.floor(at / step) * step);
  return (await asked('query_range', { query, start, end, step })).map((each) => series(target, each, intervalMs));
}

function Drawn({ panel: { type, options }, data, fieldConfig, width, height }) {
  const size = { width, height, timeRange: range };
  if (type === 'table') return <TableNG {...options} {...size} {...{ fieldConfig }} data={data[0]} />;
  if (type === 'timeseries') {
    return <TimeSeries {...size} {...{ options }} frames={data} timeZone="utc" legend={options.legend} />;
  }
  const shown = grafana.getFieldDisplayValues({ data, fieldConfig, theme, replaceVariables: same, timeZone: 'utc',
    reduceOptions: options.reduceOptions, sparkline: options.graphMode !== 'none' });
  return shown.map(({ display, sparkline }, n) => <BigValue key={n} {...{ theme, height, ...options }} value={display}
    width={width / shown.length} count={shown.length} sparkline={sparkline && { ...sparkline, timeRange: range }} />);
}

function Panel({ panel, data, fieldConfig, place: { left, top, width, height } }) {
  const [stat, { title, description }] = [panel.type === 'stat', panel];
  const empty = !stat && data.every((frame) => frame.length === 0);
  return <div style={{ position: 'absolute', left, top }}>
    <PanelChrome {...{ title, description, width, height }} padding={stat ? 'none' : 'md'}>
      {(width, height) => (empty ? 'No data' : <Drawn {...{ panel, data, fieldConfig, width, height }} />)}
    </PanelChrome>
  </div>;
}

async function placed(panel) {
  const [{ x, y, w, h }, column, row] = [panel.gridPos, (WIDTH - GAP) / COLUMNS, CELL + GAP];
  const place = { left: GAP + x * column, top: GAP + y * row, width: w * column - GAP, height: h * row - GAP };
  const each = await Promise.all(panel.targets.map((target) => frames(panel, target, place.width)));
  const told = each.map((some) => some.flatMap(({ fields }) => fields.at(-1).values).filter(Number.isFinite).length);
  const data = await lastValueFrom(
    grafana.transformDataFrame(panel.transformations ?? [], each.flat(), { interpolate: same }));
  return { panel, place, told, ...configured(panel, data) };
}

async function main() {
  const transformers = new Set(Object.values(grafana.standardTransformers));
  grafana.standardTransformersRegistry.setInit(() => [...transformers].map(
    (each) => ({ id: each.id, name: each.name, transformation: () => Promise.resolve(each) })));
  const all = await Promise.all((await (await fetch('grafana.json')).json()).panels.map(placed));
  await Promise.all([400, 500].map((weight) => document.fonts.load(`${weight} 12px Inter`)));
  const height = Math.max(...all.map(({ place }) => place.top + place.height)) + GAP;
  Object.assign(document.body.style,
    { margin: 0, width: `${WIDTH}px`, height: `${height}px`, background: theme.colors.background.canvas });
  createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      {all.map((each) => <Panel key={each.panel.id} {...each} />)}
    </ThemeContext.Provider>);
  window.drawn = { height, told: all.map(({ panel, told }) => [panel.title, told]) };
}

window.__grafana_public_path__ = 'public/';
main().catch((error) => { window.drawn = { error: error.stack }; });
