package console

import (
	"bytes"
	"encoding/json"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/client"
	"github.com/belfryhq/belfry/admin/oidc"
)

// entrance is the page where people sign in.
type entrance struct {
	Password bool
	Provider *api.WayIn // its path leads back here
	ReturnTo string
	Name     string
	Fault    template.HTML
}

// signInPage shows the ways in.
func (c *Console) signInPage(w http.ResponseWriter, req *http.Request) {
	c.enter(w, req, http.StatusOK, entrance{ReturnTo: req.URL.Query().Get("return_to")})
}

func (c *Console) enter(w http.ResponseWriter, req *http.Request, status int, page entrance) {
	ways, failing, err := c.ways(req)
	if err != nil {
		c.problem(w, req, failing, err)
		return
	}
	page.ReturnTo = c.back(page.ReturnTo)
	if ways.As != nil && status == http.StatusOK {
		http.Redirect(w, req, page.ReturnTo, http.StatusSeeOther)
		return
	}
	page.Password, page.Provider = ways.Password, ways.Provider
	if page.Provider != nil {
		page.Provider.Path += "?" + url.Values{"return_to": {strings.TrimPrefix(page.ReturnTo, c.at)}}.Encode()
	}
	c.show(w, req, status, "signin", frame{Title: "Sign in", Page: page})
}

// back is where a sign-in leads to: a path of this belfry's.
func (c *Console) back(to string) string {
	if !oidc.Path(to) || !strings.HasPrefix(to, c.at+"/") {
		return c.link("/")
	}
	return to
}

// signIn gives a form to the API, and the API's cookie to the browser.
func (c *Console) signIn(w http.ResponseWriter, req *http.Request) {
	if err := req.ParseForm(); err != nil {
		c.problem(w, req, http.StatusBadRequest, err)
		return
	}
	given := map[string]string{"name": req.PostForm.Get("name"), "password": req.PostForm.Get("password")}
	if link := strings.TrimSpace(req.PostForm.Get("link")); link != "" {
		given = map[string]string{"link": link}
	}
	said, err := c.login(req, "/login", given)
	switch {
	case err != nil:
		c.problem(w, req, http.StatusInternalServerError, err)
	case said.status != http.StatusOK:
		if wait := said.header.Get("Retry-After"); wait != "" {
			w.Header().Set("Retry-After", wait)
		}
		c.enter(w, req, said.status, entrance{ReturnTo: req.PostForm.Get("return_to"), Name: given["name"], Fault: c.inline(problemIn(said.body).Error())})
	default:
		w.Header()["Set-Cookie"] = said.header["Set-Cookie"]
		http.Redirect(w, req, c.back(req.PostForm.Get("return_to")), http.StatusSeeOther) //nolint:gosec // back takes paths of this console only
	}
}

// signOut ends the session.
func (c *Console) signOut(w http.ResponseWriter, req *http.Request) {
	said, err := c.login(req, "/logout", nil)
	switch {
	case err != nil:
		c.problem(w, req, http.StatusInternalServerError, err)
	case said.status != http.StatusOK:
		c.problem(w, req, said.status, problemIn(said.body))
	default:
		w.Header()["Set-Cookie"] = said.header["Set-Cookie"]
		http.Redirect(w, req, c.link("/sign-in"), http.StatusSeeOther)
	}
}

// said is what the API answered.
type said struct {
	status int
	header http.Header
	body   []byte
}

// login posts to one of the API's paths that are about sessions.
func (c *Console) login(req *http.Request, path string, given map[string]string) (answer said, err error) {
	var body bytes.Buffer
	if given != nil {
		if err := json.NewEncoder(&body).Encode(given); err != nil {
			return answer, err
		}
	}
	asked, err := http.NewRequestWithContext(req.Context(), http.MethodPost, api.Prefix+path, &body)
	if err != nil {
		return answer, err
	}
	if given != nil {
		asked.Header.Set("Content-Type", "application/json")
	}
	res, err := client.Within(c.api, req).RoundTrip(asked)
	if err != nil {
		return answer, err
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	answer.status, answer.header = res.StatusCode, res.Header
	answer.body, err = io.ReadAll(res.Body)
	return answer, err
}
