package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/html"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/text"
)

//go:embed assets pages
var files embed.FS

// policy is the Content-Security-Policy: scripts and styles are files of the binary, never inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Console serves the pages. It is safe for concurrent use.
type Console struct {
	api        *api.Handler
	at         string // prefix of every address; "" means the root
	called     api.Environment
	zone       *time.Location // the reader's, in the copy for one request; nil means the server's
	role       operation.Role // of the caller, in the copy for one request; the zero value restricts no link
	operations []operation.Operation
	mux        *http.ServeMux
	pages      map[string]*template.Template
	assets     map[string]asset
}

// asset is an embedded file that pages load.
type asset struct {
	kind    string
	content []byte
	zipped  func() []byte // the compressed content, made on first use
	version string        // a hash of the content
}

// New returns a console over the operations that the API serves. Its addresses begin with the path at. Each
// page shows the environment.
func New(served *api.Handler, at string, operations []operation.Operation, called api.Environment) *Console {
	c := &Console{api: served, at: at, called: called, operations: operations, mux: http.NewServeMux(), assets: readAssets()}
	c.pages = c.parse()
	c.route()
	return c
}

// pathOf returns the path of an operation's page.
func pathOf(o operation.Operation) string {
	at := api.PathOf(o)
	if o.Changes && o.Verb() == "set" { // the API uses PATCH
		at += "/set"
	}
	return at
}

// barePath returns the path of the form of an act without arguments, such as /new/tokens/create.
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

// ServeHTTP implements http.Handler. The API's handler has set the headers that all its responses share.
func (c *Console) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
	c.mux.ServeHTTP(w, req)
}

// readAssets returns the embedded assets by name.
func readAssets() map[string]asset {
	all := make(map[string]asset)
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
		".txt": "text/plain; charset=utf-8"}
	for _, e := range text.Must(fs.ReadDir(files, "assets")) {
		content := text.Must(fs.ReadFile(files, path.Join("assets", e.Name())))
		sum := sha256.Sum256(content)
		all[e.Name()] = asset{kinds[path.Ext(e.Name())], content, sync.OnceValue(func() []byte { return zip(content) }),
			hex.EncodeToString(sum[:6])}
	}
	return all
}

// asset serves an embedded file. Its address contains its version, so browsers cache it for a year.
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

// zip compresses content with gzip.
func zip(content []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	text.Must(z.Write(content))
	text.Must(0, z.Close())
	return b.Bytes()
}

// link returns the address of a path for browsers.
func (c *Console) link(to string) string { return c.at + to }

// assetLink returns the versioned address of an asset.
func (c *Console) assetLink(name string) string {
	return c.link("/assets/" + name + "?v=" + c.assets[name].version)
}

// named returns the operation with a name.
func (c *Console) named(name string) (operation.Operation, bool) {
	for _, o := range c.operations {
		if o.Name == name {
			return o, true
		}
	}
	return operation.Operation{}, false
}

// parse parses the templates: each page with the layout.
func (c *Console) parse() map[string]*template.Template {
	pages := make(map[string]*template.Template)
	for _, e := range text.Must(fs.ReadDir(files, "pages")) {
		name := strings.TrimSuffix(e.Name(), ".html")
		pages[name] = text.Must(template.New("layout.html").Funcs(template.FuncMap{
			"link": c.link, "asset": c.assetLink, "environment": func() api.Environment { return c.called }, "number": text.Grouped,
		}).ParseFS(files, "pages/layout.html", "pages/parts.html", "pages/"+e.Name()))
	}
	return pages
}
