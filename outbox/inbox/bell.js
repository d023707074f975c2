// <belfry-bell url="https://inbox.example.com" token="/inbox-token"></belfry-bell>
// token: a path that answers with the token.
customElements.define("belfry-bell", class extends HTMLElement {
	connectedCallback() {
		if (!this.box) {
			const root = this.attachShadow({ mode: "open" });
			root.innerHTML = `<style>
:host{position:relative;font:14px system-ui}
button{font:inherit;background:none;border:0;padding:10px;cursor:pointer}
b:not(:empty){background:#c00;color:#fff;border-radius:9px;padding:0 5px;font-size:11px}
div{position:absolute;right:0;z-index:9;width:min(340px,90vw);max-height:70vh;overflow:auto;background:#fff;border:1px solid #ccc}
ol{margin:0;padding:0}
li{display:block;border-top:1px solid #ddd}
li button{width:100%;text-align:start;overflow-wrap:anywhere}
.new{font-weight:600;background:#eef4ff}
small{display:block;font-weight:400}
</style><button class=bell aria-expanded=false><svg width=20 height=20><path d="M10 2a5 5 0 0 0-5 5v4l-2 3h14l-2-3V7a5 5 0 0 0-5-5zM8 15h4a2 2 0 0 1-4 0z"/></svg><b></b></button><div hidden><button>Mark all as read</button><ol></ol><button>More</button></div>`;
			[this.bell, this.all, this.more] = root.querySelectorAll("button");
			[this.badge, this.box, this.rows] = ["b", "div", "ol"].map((tag) => root.querySelector(tag));
			this.bell.onclick = () => this.open(this.box.hidden);
			this.all.onclick = () => this.mark("/read", { all: true });
			this.more.onclick = () => this.list(this.next);
			this.onkeydown = (e) => e.key == "Escape" && this.open(false);
			document.addEventListener("click", (e) => e.composedPath().includes(this) || this.open(false));
		}
		this.follow();
	}
	disconnectedCallback() {
		this.stream?.close();
	}
	async call(path, body, again) {
		this.jwt ||= await fetch(this.getAttribute("token")).then((r) => (r.ok ? r.text() : Promise.reject(r)));
		const r = await fetch(this.getAttribute("url") + "/v1/inbox" + path, {
			method: body ? "POST" : "GET",
			headers: { Authorization: "Bearer " + this.jwt, "Content-Type": "application/json" },
			body: body && JSON.stringify(body),
		});
		if (r.status == 401 && !again) {
			this.jwt = "";
			return this.call(path, body, true);
		}
		if (!r.ok) throw r;
		return r.status == 204 || r.json();
	}
	async refresh() {
		const { unread } = await this.call("/count");
		this.badge.textContent = unread > 99 ? "99+" : unread || "";
		this.bell.ariaLabel = `Notifications: ${unread} unread`;
		if (!this.box.hidden) await this.list();
	}
	async list(before) {
		const page = await this.call("?limit=20" + (before ? "&before=" + before : ""));
		if (!before) this.rows.replaceChildren();
		for (const n of page.notifications) {
			const [li, row, small] = ["li", "button", "small"].map((tag) => document.createElement(tag));
			row.className = n.read ? "" : "new";
			small.textContent = n.body + " " + new Date(n.at).toLocaleString();
			row.append(n.title, small);
			row.onclick = async () => {
				await this.mark("/read", { ids: [n.id] });
				if (/^(https:|\/\w)/.test(n.data.url)) location = n.data.url;
			};
			li.append(row);
			this.rows.append(li);
		}
		this.next = page.next;
		this.more.hidden = !page.next;
	}
	async mark(path, body) {
		await this.call(path, body);
		await this.refresh();
	}
	open(yes) {
		if (yes == !this.box.hidden) return;
		this.box.hidden = !yes;
		this.bell.ariaExpanded = yes;
		if (yes) this.mark("/seen", {});
	}
	async follow() {
		const again = (ms) => {
			clearTimeout(this.wait);
			this.wait = setTimeout(() => this.isConnected && this.follow(), ms * (1 + Math.random()));
		};
		try {
			await this.refresh();
		} catch {
			return again(5e3);
		}
		this.stream?.close();
		if (!this.isConnected) return;
		const s = (this.stream = new EventSource(this.getAttribute("url") + "/v1/stream?access_token=" + this.jwt));
		s.onmessage = (e) => {
			const m = JSON.parse(e.data);
			clearTimeout(this.timer);
			this.timer = setTimeout(() => this.refresh().catch(() => {}), m.notification || m.type == "read" ? 50 : 5e3 * Math.random());
		};
		s.onerror = () => s.readyState == 2 && again(1e3);
	}
});
