"use strict";
// Figures in words, and elements from values: what comes from a record reaches the page as text alone.
const $ = (id) => document.getElementById(id);
function el(tag, about = {}, ...inner) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(about)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value);
  }
  element.append(...inner.flat().filter((part) => part !== null && part !== undefined));
  return element;
}
// What stands between backticks is to be typed.
const typed = (text) => text.split("`").map((part, at) => at % 2 ? el("code", {}, part) : part);
const NONE = "–";
const digits = (number, least = 3) => {
  const size = Math.abs(number);
  if (size >= 10 ** (least - 1) || size === 0) return Math.round(number).toLocaleString("en-US");
  return number.toLocaleString("en-US", { maximumSignificantDigits: least });
};
const size = (bytes) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0, figure = bytes;
  while (Math.abs(figure) >= 1024 && unit < 5) { figure /= 1024; unit += 1; }
  return `${digits(figure)} ${units[unit]}`;
};
const seconds = (s) => {
  const small = Math.abs(s);
  if (small === 0) return "0 s";
  if (small < 1e-3) return `${digits(s * 1e6)} µs`;
  if (small < 1) return `${digits(s * 1e3)} ms`;
  return small < 120 ? `${digits(s)} s` : clock(s * 1e6);
};
const UNITS = {
  bytes: size, "bytes-per-second": (value) => `${size(value)}/s`, cores: (value) => digits(value),
  share: (value) => `${digits(value * 100)} %`, seconds, "per-second": (value) => `${digits(value)}/s`,
  watts: (value) => `${digits(value)} W`, celsius: (value) => `${digits(value)} °C`, megahertz: (value) => `${digits(value)} MHz`,
  count: (value) => digits(value),
};
const inUnit = (value, unit) => value === null || value === undefined ? NONE : UNITS[unit](value);
// A time of a run: 4.2 s, 12:05, 3:12:05.
const clock = (us) => {
  const s = us / 1e6, two = (number) => String(Math.floor(number)).padStart(2, "0");
  if (s < 1) return s === 0 ? "0 s" : seconds(s);
  if (s < 100) return `${s.toFixed(s < 10 ? 2 : 1)} s`;
  return s < 3600 ? `${Math.floor(s / 60)}:${two(s % 60)} min` : `${Math.floor(s / 3600)}:${two(s / 60 % 60)}:${two(s % 60)} h`;
};
function table(caption, heads, rows) {
  const head = (text, at) => el("th", { scope: "col", class: at > 0 ? "number" : null }, text);
  const cell = (text, at) => el(at === 0 ? "th" : "td", { scope: at === 0 ? "row" : null, class: at > 0 ? "number" : null }, text);
  return el("div", { class: "wide", tabindex: 0 }, el("table", {}, el("caption", { class: "dim" }, caption),
    el("thead", {}, el("tr", {}, heads.map(head))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell))))));
}
