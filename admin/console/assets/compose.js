// The script of the form of a new notification: the phone shows what is typed, and the count of the recipients follows
// the choices. The form works without it.
(() => {
  "use strict";
  const form = document.getElementById("compose");
  if (!form) return;

  // The phone shows the selected language. Texts that it lacks are those of all languages.
  const phones = form.querySelectorAll("[data-phone]"), base = form.querySelector(".language");
  const said = (of, name) => of.querySelector(`[name="${name}"], [name="_${name}"]`).value.trim();
  function mirror() {
    const of = form.querySelector(".language:has(.tab input:checked)") ?? base;
    for (const phone of phones) {
      phone.querySelector(".says").textContent = said(of, "title") || said(base, "title") || "Title";
      phone.querySelector(".body").textContent = said(of, "body") || said(base, "body") || "Text";
    }
    for (const one of form.querySelectorAll(".language")) {
      const locale = one.querySelector('[name="_locale"]');
      if (locale) one.querySelector(".tab span").textContent = locale.value.trim() || "Add a language";
    }
  }

  // A new empty language follows the last one as soon as that has a name.
  function grow() {
    const last = [...form.querySelectorAll(".language")].pop(), locale = last.querySelector('[name="_locale"]');
    if (!locale || locale.value.trim() === "") return;
    const next = last.cloneNode(true);
    for (const e of next.querySelectorAll("[name]")) e.value = "";
    const pick = next.querySelector(".tab input");
    pick.checked = false;
    pick.value = String(Number(last.querySelector(".tab input").value) + 1);
    last.after(next);
  }

  // The server counts with the form as it is, once the reader pauses. A newer count replaces an older one.
  let waiting, asking;
  async function count() {
    asking?.abort();
    const own = asking = new AbortController(), place = document.getElementById("reach");
    const body = new URLSearchParams(new FormData(form));
    body.set("_live", "on");
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(form.action, { method: "POST", body, signal: own.signal, headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const id of ["reach", "free", "area", "total"]) {
        const here = document.getElementById(id);
        if (!here.contains(document.activeElement)) here.replaceChildren(...page.getElementById(id).childNodes);
      }
    } catch { // a newer count has begun, or the server is away
    } finally {
      if (asking === own) place.removeAttribute("aria-busy");
    }
  }

  form.addEventListener("input", (event) => {
    document.getElementById("review")?.remove(); // it is about the values before
    mirror();
    grow();
    if (!event.target.matches("[data-counts], #in-lane, #in-route, #in-type")) return;
    clearTimeout(waiting);
    waiting = setTimeout(count, 400);
  });
  mirror();
  if (form.querySelector('[name="_to"]:checked') && !form.querySelector("#reach .count")) count();
})();
