// Moves the threshold of the page and shows what it does. All numbers are in the page.
(() => {
  "use strict";
  const store = document.getElementById("explorer-data");
  if (!store) return;
  const data = JSON.parse(store.textContent);
  const part = name => document.getElementById(`explorer-${name}`);
  const slider = part("threshold");
  const total = data.n_class + data.n_other;
  const percent = share => `${(100 * share).toFixed(1)}%`;
  const count = number => number.toLocaleString("en");

  const show = () => {
    const i = Number(slider.value);
    const hits = data.hits[i];
    const alarms = data.alarms[i];
    const flagged = hits + alarms;
    const words = {
      at: percent(data.at[i]),
      precision: flagged ? percent(hits / flagged) : "none flagged",
      recall: percent(hits / data.n_class),
      flagged: percent(flagged / total),
      hits: count(hits),
      alarms: count(alarms),
      misses: count(data.n_class - hits),
      rest: count(data.n_other - alarms),
    };
    for (const [name, text] of Object.entries(words)) part(name).textContent = text;
    slider.setAttribute("aria-valuetext", words.at);
  };

  slider.max = String(data.at.length - 1);
  slider.value = String(data.start);
  slider.addEventListener("input", show);
  show();
  part("box").hidden = false;
  document.documentElement.classList.add("scripted");
})();
