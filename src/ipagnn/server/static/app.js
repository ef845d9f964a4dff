// The page: editor on the left, what models did on the right. Its state is the text, two model names and the step.

import { Editor } from "./editor.js";
import { exampleButtons, languageRows, prose } from "./help.js";
import { power } from "./number.js";
import { Panel } from "./panel.js";
import { html } from "./svg.js";

const WAIT = 250; // milliseconds after the last key before a model is asked
const PLAY_SECONDS = 8;
const PAPER = "paper"; // the choice of the paper's model, whichever of its files fits the program
const PAPER_ARCHITECTURE = "ipa-gnn";

const get = (id) => document.getElementById(id);
const [model, compare, slider, play] = ["model", "compare", "step", "play"].map(get);
const editor = new Editor(get("editor"), () => {
  tellAbout("");
  later();
});
const tip = {
  show(event, parts) {
    const box = get("tip");
    box.replaceChildren(...parts.map((part) => html("div", {}, part)));
    box.hidden = false;
    const left = Math.min(event.clientX + 14, window.innerWidth - box.offsetWidth - 8);
    const below = event.clientY + 16;
    box.style.left = `${Math.max(left, 4)}px`;
    box.style.top = `${below + box.offsetHeight > window.innerHeight ? event.clientY - box.offsetHeight - 10 : below}px`;
  },
  hide() {
    get("tip").hidden = true;
  },
};

let models = [];
let panels = [];
let timer = 0;
let playing = 0;
let request = new AbortController();

function say(text) {
  get("status").textContent = text;
}

async function ask(path, body, signal) {
  for (;;) {
    const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    const answer = await fetch(path, { ...options, signal });
    if (answer.status === 503) {
      say("The server is busy; asking again in a moment.");
      await new Promise((done) => setTimeout(done, 1000 * Number(answer.headers.get("Retry-After") ?? 1)));
      signal?.throwIfAborted();
      continue;
    }
    const told = await answer.json();
    if (!answer.ok) throw Object.assign(new Error(told.detail), { problem: told });
    return told;
  }
}

function later() {
  clearTimeout(timer);
  request.abort();
  tip.hide();
  document.body.dataset.state = "waiting";
  timer = setTimeout(run, WAIT);
}

async function run() {
  clearTimeout(timer);
  request.abort();
  request = new AbortController();
  const { signal } = request;
  const source = editor.value;
  remember();
  if (!editor.programLines.length) {
    clear("empty");
    return;
  }
  const second = compare.value === PAPER ? paperModel() : compare.value;
  const names = [model.value || null, ...(second ? [second] : [])];
  document.body.dataset.state = "running";
  say("Running…");
  const began = performance.now();
  try {
    const answers = await Promise.allSettled(
      names.map((name) => ask("api/explain", name ? { source, model: name } : { source }, signal)),
    );
    if (signal.aborted) return;
    const failures = answers.filter((answer) => answer.status === "rejected").map((answer) => answer.reason);
    const fatal = failures.find((reason) => reason.problem?.line) ?? (failures.length === names.length && failures[0]);
    if (fatal) throw fatal;
    show(answers.filter((answer) => answer.status === "fulfilled").map((answer) => answer.value));
    tellFailures(answers, names);
    say(`Answered in ${Math.round(performance.now() - began).toLocaleString("en")} ms.`);
    document.body.dataset.state = "ready";
  } catch (error) {
    if (signal.aborted) return;
    fail(error);
  }
}

// The answer of one model stays where the other has none: it may take too long, or not know the task.
function tellFailures(answers, names) {
  const sentences = answers.flatMap(({ reason }, i) =>
    reason ? [`${names[i] || "The model that fits"} gives no answer. ${problemOf(reason).detail}`] : [],
  );
  get("error").textContent = sentences.join(" ");
  get("error").hidden = !sentences.length;
}

function problemOf(error) {
  return error.problem ?? { detail: "The server does not answer; is it still running?" };
}

function fail(error) {
  const problem = problemOf(error);
  clear("failed");
  editor.showError(problem.line ? problem : null);
  get("error").textContent = problem.detail;
  get("error").hidden = false;
}

// Nothing stays of the program that was there before.
function clear(state) {
  stop();
  tip.hide();
  say("");
  panels = [];
  get("panels").replaceChildren();
  get("here").textContent = get("step-label").textContent = "";
  slider.value = slider.max = 0;
  slider.disabled = play.disabled = true;
  slider.removeAttribute("aria-valuetext");
  editor.showError(null);
  editor.showPointer(new Map());
  get("error").hidden = true;
  get("invitation").hidden = state !== "empty";
  document.body.dataset.state = state;
}

function show(answers) {
  editor.showError(null);
  get("error").hidden = get("invitation").hidden = true;
  stop();
  panels = answers.map((told) => new Panel(told, tip, goTo));
  get("panels").replaceChildren(...panels.map((panel) => panel.element));
  get("panels").classList.toggle("two", panels.length > 1);
  for (const panel of panels) panel.draw();
  slider.max = Math.max(...panels.map((panel) => panel.last));
  slider.disabled = play.disabled = Number(slider.max) === 0;
  goTo(0);
}

function goTo(step) {
  if (!panels.length) return;
  slider.value = Math.min(Math.max(step, 0), slider.max);
  const at = Number(slider.value);
  for (const panel of panels) panel.show(at);
  const label = `step ${at} of ${slider.max}`;
  get("step-label").textContent = label;
  slider.setAttribute("aria-valuetext", label);
  const rows = editor.programLines;
  editor.showPointer(new Map([...panels[0].massesByLine()].map(([line, mass]) => [rows[line], mass])));
  const likeliest = [...panels[0].masses()].sort((a, b) => b[1] - a[1])[0]?.[0] ?? -1;
  get("here").textContent = panels[0].describe(at, likeliest).slice(1).join(" · ");
}

function stop() {
  clearInterval(playing);
  playing = 0;
  play.textContent = "Play";
  play.setAttribute("aria-pressed", "false");
}

function start() {
  if (slider.value === slider.max) goTo(0);
  const pause = Math.min(400, Math.max(30, (1000 * PLAY_SECONDS) / Number(slider.max)));
  playing = setInterval(() => {
    goTo(Number(slider.value) + 1);
    if (slider.value === slider.max) stop();
  }, pause);
  play.textContent = "Pause";
  play.setAttribute("aria-pressed", "true");
}

// The address holds the program, so that it can be sent to somebody.
function remember() {
  const parts = new URLSearchParams({ program: editor.value });
  if (model.value) parts.set("model", model.value);
  if (compare.value) parts.set("compare", compare.value);
  history.replaceState(null, "", `#${parts}`);
}

function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  model.value = parts.get("model") ?? "";
  if (model.selectedIndex < 0) model.value = "";
  compareWith(parts.get("compare") ?? "");
  editor.value = parts.get("program") ?? editor.value;
}

async function share() {
  remember();
  try {
    await navigator.clipboard.writeText(location.href);
    say("The link is in the clipboard; the address of this page is the same.");
  } catch {
    say("The address of this page is the link; copy it from there.");
  }
}

// The model of the paper that was trained for programs such as this one; empty if none is offered.
function paperModel() {
  const papers = models.filter((one) => one.architecture === PAPER_ARCHITECTURE);
  const task = editor.isMasked ? "partial" : "full";
  return (papers.find((one) => one.task === task) ?? papers[0])?.name ?? "";
}

function compareWith(name) {
  compare.value = name;
  if (compare.selectedIndex < 0) compare.value = "";
  get("paper").setAttribute("aria-pressed", compare.value === PAPER);
}

function choose(example) {
  model.value = example.model ?? "";
  const second = models.find((one) => one.name === example.compare);
  compareWith(second?.architecture === PAPER_ARCHITECTURE ? PAPER : example.compare ?? "");
  editor.value = example.source;
  tellAbout(example.about);
  run();
}

function tellAbout(text) {
  get("about").replaceChildren(...prose(text));
  get("about").hidden = !text;
}

async function help() {
  try {
    const name = model.value || panels[0]?.told.model;
    const { forms } = await ask(`api/language${name ? `?${new URLSearchParams({ model: name })}` : ""}`);
    const shown = models.find((one) => one.name === name) ?? models[0];
    get("result").textContent = `v${shown.variable}`;
    get("modulus").replaceChildren(power(shown.modulus));
    get("forms").replaceChildren(...languageRows(forms));
    get("card").showModal();
  } catch (error) {
    fail(error);
  }
}

async function sample() {
  const parts = new URLSearchParams({ length: get("length").value, task: get("masked").checked ? "partial" : "full" });
  if (model.value) parts.set("model", model.value);
  try {
    editor.value = (await ask(`api/sample?${parts}`)).source;
    run();
  } catch (error) {
    fail(error);
  }
}

async function begin() {
  let examples;
  try {
    [models, { examples }] = await Promise.all([ask("api/models"), ask("api/language")]);
  } catch (error) {
    fail(error);
    return;
  }
  const option = (value, text) => html("option", { value }, text);
  // Names of the package begin with what the model is; those of runs say nothing.
  const named = (one) => option(one.name, one.name.startsWith(one.architecture) ? one.name : `${one.name} (${one.architecture}, ${one.task})`);
  model.append(option("", "whichever fits"), ...models.map(named));
  compare.append(option("", "nothing"), ...models.map(named));
  if (models.some((one) => one.architecture === PAPER_ARCHITECTURE)) {
    compare.children[0].after(option(PAPER, "the paper’s IPA-GNN"));
    get("paper").hidden = false;
  }
  get("examples").append(...exampleButtons(examples, choose));
  model.addEventListener("change", run);
  compare.addEventListener("change", () => {
    compareWith(compare.value);
    run();
  });
  get("paper").addEventListener("click", () => {
    compareWith(compare.value === PAPER ? "" : PAPER);
    run();
  });
  for (const button of ["help", "invited"]) get(button).addEventListener("click", help);
  slider.addEventListener("input", () => {
    stop();
    goTo(Number(slider.value));
  });
  play.addEventListener("click", () => (playing ? stop() : start()));
  get("sample").addEventListener("click", sample);
  get("share").addEventListener("click", share);
  window.addEventListener("hashchange", recall);
  let resized = 0;
  window.addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => {
      for (const panel of panels) panel.draw();
      goTo(Number(slider.value));
    }, 150);
  });
  if (location.hash.includes("program=")) {
    recall();
    run();
  } else {
    choose(examples.find((one) => one.compare) ?? examples[0]); // two models that differ, if there are such
  }
}

begin();
