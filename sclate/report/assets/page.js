// The filter of the rounds. The page is complete without it.
"use strict";
(() => {
  const form = document.getElementById("filter");
  const count = document.getElementById("count");
  const groups = [...document.querySelectorAll("section.group")];
  const rounds = [...document.querySelectorAll("details.round")];
  const fields = ["session", "verdict", "q"].map((name) => form.elements[name]);
  const texts = new WeakMap();

  const text = (round) => {
    if (!texts.has(round)) texts.set(round, round.textContent.toLowerCase());
    return texts.get(round);
  };

  const apply = () => {
    const [session, verdict, q] = fields.map((field) => field.value);
    const wanted = q.trim().toLowerCase();
    let shown = 0;
    for (const round of rounds) {
      const fits =
        (!session || round.dataset.session === session) &&
        (!verdict || round.dataset.verdict === verdict) &&
        (!wanted || text(round).includes(wanted));
      round.hidden = !fits;
      shown += fits;
    }
    for (const group of groups) group.hidden = !group.querySelector("details.round:not([hidden])");
    count.textContent = `${shown} of ${rounds.length} rounds`;
  };

  const write = () => {
    const hash = new URLSearchParams();
    for (const field of fields) if (field.value) hash.set(field.name, field.value);
    history.replaceState(null, "", "#" + (String(hash) || "rounds"));
    apply();
  };

  const read = () => {
    const hash = new URLSearchParams(location.hash.slice(1));
    if (!fields.some((field) => hash.has(field.name))) return;
    for (const field of fields) field.value = hash.get(field.name) || "";
    apply();
    document.getElementById("rounds").scrollIntoView();
  };

  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", write);
  form.elements.clear.addEventListener("click", () => {
    for (const field of fields) field.value = "";
    write();
  });
  form.elements.open.addEventListener("click", () => {
    const visible = rounds.filter((round) => !round.hidden);
    const open = visible.some((round) => !round.open);
    for (const round of visible) round.open = open;
  });
  // A link to a session leads to its rounds, whatever the filter hides.
  for (const link of document.querySelectorAll("a.to-session")) {
    link.addEventListener("click", () => {
      for (const field of fields) field.value = "";
      apply();
    });
  }
  addEventListener("hashchange", read);
  apply();
  read();
})();
