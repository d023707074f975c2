// The script updates cells, announces events, keeps relative times current, and handles keys, menus and dialogs.
// Every page works without it.
(() => {
  "use strict";

  // One tab of a browser, the holder of the lock, opens the event stream and forwards each event to the
  // other tabs. When it closes, another tab takes over.
  const address = document.body.dataset.live;
  const quietFor = 5000; // without an event, until the page shows that it is not live
  const known = new Set([...document.querySelectorAll("[data-job]")].map((e) => Number(e.dataset.job)));
  const begun = new Set();
  let heard = Date.now();
  let ahead = 0; // of this clock before the server's, in milliseconds

  const each = (attribute, name, change) => {
    for (const e of document.querySelectorAll(`[${attribute}="${CSS.escape(name)}"]`)) change(e);
  };

  // Changes that the page does not show yet are announced above it, with a link that reloads it.
  const about = new Set((document.body.dataset.about || "").split(" ").filter(Boolean));
  const whoAmI = document.querySelector(".who .more summary")?.textContent ?? "";
  const heardOf = new Set(); // announced events; the stream of another tab repeats some of them
  let acted = 0; // the time of the user's last act on this page
  let news = [], missed = false;
  const concerns = (act) => ["*", act.of, act.of + ":" + act.name, act.of + "." + act.kind].some((one) => about.has(one));

  function announce() {
    const place = document.getElementById("announce");
    const said = [];
    if (begun.size > 0) said.push(begun.size === 1 ? "1 job has begun" : `${begun.size} jobs have begun`);
    if (news.length > 0) said.push((news.length === 1 ? "" : `${news.length} changes, the last: `) + news[news.length - 1].text);
    if (missed) said.push("something may have changed meanwhile");
    if (!place || said.length === 0) return;
    place.firstElementChild.textContent = said.join("; ") + (begun.size === 1 && said.length === 1 ? ": show it" : ": show the page as it is now");
    place.hidden = false;
  }

  function begins(jobs) {
    if (!document.querySelector("[data-begins]")) return;
    for (const id of jobs) if (!known.has(id)) begun.add(id);
    news = news.filter((act) => act.of !== "job" || !begun.has(Number(act.name))); // a job that began is no longer news as enqueued
  }

  // The user's own act has just led to this page, so it is not announced. The layout shows a halt.
  function happens(acts) {
    for (const act of acts) {
      const id = (act.of === "job" ? "job/" : "other/") + act.id;
      if (heardOf.has(id)) continue;
      heardOf.add(id);
      if (heardOf.size > 5000) heardOf.delete(heardOf.values().next().value);
      if (act.of === "installation") reframe();
      if (!concerns(act) || (act.by === whoAmI && performance.now() < acted + 2000)) continue;
      if (act.of === "job" && begun.has(Number(act.name))) continue;
      news.push(act);
    }
  }

  async function reframe() {
    const answer = await fetch(document.querySelector(".brand").href, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("halted"), place = document.getElementById("halted"), over = document.querySelector(".over");
    if (fresh && !fresh.hidden) {
      place.replaceChildren(...fresh.childNodes);
      if (place.hidden) over.prepend(place);
      place.hidden = false;
      place.classList.remove("gone");
    } else if (place.parentElement === over) {
      place.hidden = true;
    } else {
      place.classList.add("gone"); // its height stays
    }
    const here = document.querySelector("a.halt"), there = page.querySelector("a.halt");
    if (here && !there) here.hidden = true;
    else if (here) here.hidden = false;
    else if (there) document.querySelector(".who").prepend(document.adoptNode(there));
  }

  // A bar has a part for each segment, and a legend with an item for each.
  function bar(name, of) {
    each("data-bar", name, (e) => {
      let x = 0;
      e.setAttribute("aria-label", of.About);
      of.Widths.forEach((width, i) => {
        e.children[i].setAttribute("x", x + "%");
        e.children[i].setAttribute("width", width);
        x += parseFloat(width);
      });
    });
    each("data-legend", name, (e) => of.Counts.forEach((n, i) => {
      e.children[i].hidden = n === "0";
      e.children[i].querySelector("strong").textContent = n;
      e.children[i].querySelector("span").textContent = of.Amounts[i];
    }));
  }

  function take(event) {
    heard = Date.now();
    over = false;
    document.getElementById("stale").hidden = true;
    for (const [name, text] of Object.entries(event.cells || {})) {
      each("data-cell", name, (e) => {
        if (e.textContent !== text) e.textContent = text;
      });
      if (name.endsWith(".bar")) bar(name, JSON.parse(text));
      if (name.endsWith(".moving")) {
        each("data-while", name.replace(/[.]moving$/, ""), (e) => { e.hidden = text === ""; });
        each("data-after", name.replace(/[.]moving$/, ""), (e) => { e.hidden = text !== ""; });
      }
      if (name.endsWith(".tone")) each("data-cell", name.replace(/tone$/, "status"), (e) => { e.dataset.tone = text; });
    }
    begins(event.jobs || []);
    happens(event.acts || []);
    if (event.at) ahead = Date.now() - Date.parse(event.at);
    announce();
  }

  // After an interruption of the stream, this page is read again, and the page of each of its jobs that it
  // no longer shows.
  async function catchUp() {
    const read = async (from) => {
      const answer = await fetch(from, { headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return [];
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const e of page.querySelectorAll("[data-cell]")) {
        each("data-cell", e.dataset.cell, (here) => {
          if (here.textContent !== e.textContent) here.textContent = e.textContent;
          if (e.dataset.tone) here.dataset.tone = e.dataset.tone;
        });
      }
      for (const of of ["data-bar", "data-legend"]) {
        for (const e of page.querySelectorAll(`[${of}]`)) each(of, e.getAttribute(of), (here) => here.replaceChildren(...e.cloneNode(true).children));
      }
      return [...page.querySelectorAll("[data-job]")].map((e) => e.dataset.job);
    };
    if (about.size > 0) missed = true;
    announce();
    const there = await read(location.href);
    for (const e of document.querySelectorAll("[data-job] h2 a")) {
      if (!there.includes(e.closest("[data-job]").dataset.job)) await read(e.href);
    }
  }

  // The browser reconnects an interrupted stream by itself, but not a rejected one: by a proxy during an
  // upgrade of belfry, by belfry while its database is down, or because the session has ended.
  function listen(pass) {
    return new Promise(() => { // never resolves, so that the tab holds the lock
      const place = document.body.dataset.place; // the stream begins at the page's position
      const from = place ? address + "?after=" + encodeURIComponent(place) : address;
      const shortest = 1000, longest = 10000; // milliseconds between two tries
      let opened = false, pause = shortest;
      const connect = () => {
        over = false;
        const stream = new EventSource(from);
        stream.onopen = () => {
          if (opened) {
            pass({ again: true });
            catchUp();
          }
          opened = true;
          pause = shortest;
        };
        stream.onmessage = (message) => {
          const event = JSON.parse(message.data);
          pass(event);
          take(event);
        };
        stream.onerror = () => { if (stream.readyState === EventSource.CLOSED) refused(); };
      };
      const refused = async () => {
        const own = new AbortController();
        const status = await fetch(from, { signal: own.signal }).then((answer) => answer.status, () => 0);
        own.abort();
        if (status === 200) {
          opened = true; // events in between are missing
          connect();
        } else if (status === 401) { // until the user signs in
          pass({ over: true });
          isOver();
        } else {
          setTimeout(refused, pause * (0.5 + Math.random()));
          pause = Math.min(2 * pause, longest);
        }
      };
      signedIn = () => { if (over) connect(); };
      connect();
    });
  }

  let over = false; // the session has ended
  let signedIn = () => {}; // set in the tab with the stream: tries again after a sign-in

  // The time of the last event in the zone of the page's times, or the browser's, with the zone's name.
  const since = () => new Date(heard).toLocaleTimeString("en-GB", {
    hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZone: document.body.dataset.zone || undefined, timeZoneName: "short",
  });

  function isOver() {
    over = true;
    const way = document.createElement("a");
    way.href = address.replace(/live$/, "sign-in") + "?return_to=" + encodeURIComponent(location.pathname + location.search);
    way.textContent = "Sign in again";
    const stale = document.getElementById("stale");
    stale.replaceChildren("Not live since " + since() + ": the session has ended. ", way);
    stale.hidden = false;
  }

  function follow() {
    // A tab that opens later needs no earlier events: its page is newer.
    const name = "belfry " + address + " " + document.body.dataset.zone; // tabs of one zone share one
    const others = "BroadcastChannel" in window ? new BroadcastChannel(name) : null;
    const pass = (event) => { if (others) others.postMessage(event); };
    if (others) {
      others.onmessage = ({ data }) => {
        if (data.again) catchUp();
        else if (data.over) isOver();
        else if (data.signedIn) signedIn();
        else take(data);
      };
      pass({ signedIn: true });
    }
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return;
      pass({ signedIn: true });
      signedIn();
    });
    if (others && navigator.locks) {
      navigator.locks.request(name, () => listen(pass));
    } else {
      listen(pass);
    }
    setInterval(() => {
      const stale = document.getElementById("stale");
      if (over || Date.now() - heard < quietFor) return;
      stale.textContent = "Not live since " + since() + "; trying to connect again";
      stale.hidden = false;
    }, 1000);
  }

  if (address && "EventSource" in window) follow();

  // Relative times follow the server's clock, which each event contains. The function relative of package words has the same units.
  function relative(at) {
    const left = (at - Date.now() + ahead) / 1000, away = Math.abs(left);
    if (away < 10) return left > 0 ? "now" : "just now";
    const [, length, unit] = [[90, 1, "s"], [5400, 60, "min"], [129600, 3600, "h"], [2678400, 86400, "d"]].find(([below]) => away < below) ?? [];
    if (!unit) return null;
    const said = Math.round(away / length) + " " + unit;
    return left > 0 ? "in " + said : said + " ago";
  }
  function tick() {
    for (const e of document.querySelectorAll("time[data-relative]")) {
      const said = relative(Date.parse(e.dateTime));
      if (said && e.textContent !== said) e.textContent = said;
    }
  }
  tick();
  setInterval(tick, 1000);

  // Suggest the browser's zone.
  const zones = document.getElementById("zones");
  if (zones) zones.append(new Option("", Intl.DateTimeFormat().resolvedOptions().timeZone));

  // The secret of a sign-in link is in the fragment, which browsers do not send to servers; the user
  // submits it by a button, the only one then. A page that submitted it without a click could be opened by
  // a program that reads links in messages.
  const once = document.getElementById("link");
  if (once && location.hash.startsWith("#link=")) {
    once.value = decodeURIComponent(location.hash.slice("#link=".length));
    once.closest("details").open = true;
    for (const e of document.querySelectorAll("[data-without-link]")) e.hidden = true;
    once.form.querySelector("button").focus();
    history.replaceState(null, "", location.pathname + location.search);
  }

  // "/" focuses the search box, "g" and a key of the list open a page, "?" shows the list.
  let going = 0; // until when a key after g is awaited
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog[open]")) return;
    const page = Date.now() < going && document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    going = event.key === "g" ? Date.now() + 2000 : 0;
    if (page) page.click();
    else if (event.key === "/") document.getElementById("jump")?.focus();
    else if (event.key === "?") document.getElementById("keys")?.showModal();
    else return;
    event.preventDefault();
  });

  // A button opens the dialog that it names.
  for (const e of document.querySelectorAll("[data-opens]")) {
    e.hidden = false;
    e.addEventListener("click", () => document.getElementById(e.dataset.opens).showModal());
  }

  // A link to an act opens its page in a dialog, and so do its answers. When a dialog with a result is closed,
  // the page shows the present state.
  const act = document.getElementById("act");
  let done = false; // an act has run in the dialog
  async function ask(address, options) {
    const page = await fetch(address, { headers: { Accept: "text/html" }, ...options })
      .then(async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html"), () => null);
    const part = page?.querySelector("[data-act]");
    if (part) {
      done ||= part.matches("[data-done]");
      act.replaceChildren(document.adoptNode(part));
      if (!act.open) act.showModal();
      (act.querySelector("[data-done] [data-closes]") ?? act.querySelector("input:not([type=hidden]), select, textarea") ?? act.querySelector("[data-closes]"))?.focus();
    } else if (options && act.open) { // the form stays, and can be sent again
      const place = act.querySelector(".fault") ?? act.querySelector(".effect, form").insertAdjacentElement("beforebegin", document.createElement("p"));
      place.className = "fault";
      place.setAttribute("role", "alert");
      place.textContent = page?.querySelector("main .fault")?.textContent ?? "The server does not answer. Try again: it is done once.";
      for (const e of act.querySelectorAll("button")) e.disabled = false;
    } else {
      location.assign(address);
    }
  }
  async function refresh() {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) return location.reload();
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.getElementById("main").replaceChildren(...page.getElementById("main").childNodes);
  }
  document.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || !act) return;
    const link = event.target.closest("a[data-dialog], #act a[data-closes]");
    if (!link) return;
    event.preventDefault();
    if (link.matches("[data-closes]")) act.close();
    else ask(link.href);
  });
  act?.addEventListener("submit", (event) => {
    event.preventDefault();
    const form = event.target, body = new URLSearchParams(new FormData(form, event.submitter));
    for (const e of form.querySelectorAll("button")) e.disabled = true;
    acted = performance.now();
    ask(form.action, { method: "POST", body });
  });
  act?.addEventListener("close", () => {
    act.replaceChildren();
    if (done) refresh();
    done = false;
  });

  // Acts on selected rows need a selection.
  const boxes = [...document.querySelectorAll('.bulk input[name="id"]')], all = document.querySelector("[data-selects]");
  function select() {
    const n = boxes.filter((e) => e.checked).length;
    for (const e of document.querySelectorAll("[data-needs]")) e.disabled = n === 0;
    for (const e of document.querySelectorAll("[data-counts]")) e.textContent = n === 0 ? "Select jobs to act on them" : n + " selected";
    all.closest("form").classList.toggle("none", n === 0);
    all.checked = n > 0 && n === boxes.length;
  }
  if (all) {
    all.hidden = false;
    all.addEventListener("change", () => { for (const e of boxes) e.checked = all.checked; });
    all.closest("form").addEventListener("change", select);
    select();
  }

  // A click outside closes an open menu.
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.more[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
})();
