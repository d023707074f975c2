package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/admin/api"
)

//go:embed assets pages
var files embed.FS

// policy is what a page may load and run: what is of here, and nothing that stands in the page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Console is the pages. It is safe for concurrent use.
type Console struct {
	api        *api.Handler
	at         string // the path that every address begins with; "": the root
	called     api.Environment
	zone       *time.Location // of whoever asks, of the copy for one request; nil: the server's
	role       operation.Role // of the caller, in the copy for one request; the zero value restricts no link
	operations []operation.Operation
	routes     *http.ServeMux
	pages      map[string]*template.Template
	assets     map[string]asset
	gauges     *gauges
}

// asset is a file that pages load.
type asset struct {
	kind    string
	content []byte
	zipped  func() []byte // the content by gzip, made when it is first asked for
	version string        // of its content
}

// New returns the pages of operations that the API serves, for addresses that begin with a path. Each
// page shows the environment.
func New(served *api.Handler, at string, operations []operation.Operation, called api.Environment) *Console {
	c := &Console{api: served, at: at, called: called, operations: operations, routes: http.NewServeMux(), assets: readAssets(), gauges: new(gauges)}
	c.pages = c.parse()
	c.routes.HandleFunc("GET /assets/{name}", c.asset)
	c.routes.HandleFunc("GET /sign-in", c.signInPage)
	c.routes.HandleFunc("POST /sign-in", c.signIn)
	c.routes.HandleFunc("POST /sign-out", c.signOut)
	c.routes.HandleFunc("POST /time-zone", c.signedIn((*visit).chooseZone))
	c.routes.HandleFunc("GET /{$}", c.signedIn((*visit).now))
	c.routes.HandleFunc("GET /live", c.signedIn((*visit).live))
	c.routes.HandleFunc("GET /jump", c.signedIn((*visit).jump))
	for _, o := range operations {
		serve := func(pattern string, show func(*visit, operation.Operation)) {
			c.routes.HandleFunc(pattern, c.signedIn(func(v *visit) {
				api.Note(v.req, o.Name, false)
				show(v, o)
			}))
		}
		switch {
		case o.Shared: // /live has it
		case o.Changes:
			for _, at := range slices.Compact([]string{pathOf(o), barePath(o)}) {
				serve("GET "+at, (*visit).form)
				serve("POST "+at, (*visit).act)
			}
		case o.Name == "jobs show":
			serve("GET "+pathOf(o), (*visit).job)
		default:
			serve("GET "+pathOf(o), (*visit).look)
		}
	}
	c.routes.HandleFunc("/", c.signedIn((*visit).lost))
	return c
}

// pathOf is the path of an operation's page.
func pathOf(o operation.Operation) string {
	at := api.PathOf(o)
	if o.Changes && o.Verb() == "set" { // where the API has another method
		at += "/set"
	}
	return at
}

// barePath is the path of an act's page that does not say yet what it is about: /new/tokens/create.
func barePath(o operation.Operation) string {
	var b strings.Builder
	for word := range strings.SplitSeq(strings.TrimPrefix(pathOf(o), "/"), "/") {
		if !strings.HasPrefix(word, "{") {
			b.WriteString("/" + word)
		}
	}
	if b.String() == pathOf(o) {
		return b.String()
	}
	return "/new" + b.String()
}

// ServeHTTP answers a request. What is common to all answers of the API is set already.
func (c *Console) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
	c.routes.ServeHTTP(w, req)
}

// readAssets reads what is embedded.
func readAssets() map[string]asset {
	all := make(map[string]asset)
	entries, err := fs.ReadDir(files, "assets")
	if err != nil {
		panic(err) // they are in the binary
	}
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8"}
	for _, e := range entries {
		content, err := fs.ReadFile(files, path.Join("assets", e.Name()))
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		all[e.Name()] = asset{kinds[path.Ext(e.Name())], content, sync.OnceValue(func() []byte { return zip(content) }), hex.EncodeToString(sum[:6])}
	}
	return all
}

// asset answers with a file. Its address has its version, so that browsers may keep it.
func (c *Console) asset(w http.ResponseWriter, req *http.Request) {
	a, known := c.assets[req.PathValue("name")]
	if !known {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	if req.URL.Query().Get("v") == a.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Header().Set("Vary", "Accept-Encoding")
	if !strings.Contains(req.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = w.Write(a.content)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	_, _ = w.Write(a.zipped())
}

// zip is content by gzip.
func zip(content []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(content)
	if err := errors.Join(err, z.Close()); err != nil {
		panic(err) // a buffer takes all
	}
	return b.Bytes()
}

// link is the address of a path, as a browser has it.
func (c *Console) link(to string) string { return c.at + to }

// assetLink is the address of an asset.
func (c *Console) assetLink(name string) string {
	return c.link("/assets/" + name + "?v=" + c.assets[name].version)
}

// named finds an operation.
func (c *Console) named(name string) (operation.Operation, bool) {
	for _, o := range c.operations {
		if o.Name == name {
			return o, true
		}
	}
	return operation.Operation{}, false
}

// parse reads the templates: each page with the frame.
func (c *Console) parse() map[string]*template.Template {
	pages := make(map[string]*template.Template)
	for _, name := range []string{"signin", "now", "job", "operation", "problem"} {
		pages[name] = template.Must(template.New("frame.html").Funcs(template.FuncMap{
			"link": c.link, "asset": c.assetLink, "environment": func() api.Environment { return c.called },
		}).ParseFS(files, "pages/frame.html", "pages/parts.html", "pages/"+name+".html"))
	}
	return pages
}
