package console

import (
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/oidc"
)

// signInForm is the sign-in page.
type signInForm struct {
	Password bool
	Provider *api.LoginProvider // its path leads back to ReturnTo
	ReturnTo string
	Name     string
	Fault    template.HTML
}

// signInPage renders the sign-in page.
func (c *Console) signInPage(w http.ResponseWriter, req *http.Request) {
	c.showSignIn(w, req, http.StatusOK, signInForm{ReturnTo: req.URL.Query().Get("return_to")})
}

func (c *Console) showSignIn(w http.ResponseWriter, req *http.Request, status int, page signInForm) {
	options, err := c.api.LoginOptions(req)
	if err != nil {
		c.problem(w, req, statusFor(err), err)
		return
	}
	page.ReturnTo = c.back(page.ReturnTo)
	if options.As != nil && status == http.StatusOK {
		http.Redirect(w, req, page.ReturnTo, http.StatusSeeOther)
		return
	}
	page.Password, page.Provider = options.Password, options.Provider
	if page.Provider != nil {
		page.Provider.Path += "?" + url.Values{"return_to": {strings.TrimPrefix(page.ReturnTo, c.at)}}.Encode()
	}
	c.show(w, req, status, "signin", layout{Title: "Sign in", Page: page})
}

// back returns the target of a redirect: a path of this console.
func (c *Console) back(to string) string {
	if !oidc.LocalPath(to) || !strings.HasPrefix(to, c.at+"/") {
		return c.link("/")
	}
	return to
}

// signIn signs in with the credentials of a form.
func (c *Console) signIn(w http.ResponseWriter, req *http.Request) {
	if err := req.ParseForm(); err != nil {
		c.problem(w, req, http.StatusBadRequest, err)
		return
	}
	credentials := api.Credentials{Name: req.PostForm.Get("name"), Password: req.PostForm.Get("password")}
	if link := strings.TrimSpace(req.PostForm.Get("link")); link != "" {
		credentials = api.Credentials{Link: link}
	}
	if _, err := c.api.SignIn(w, req, credentials); err != nil {
		setRetryAfter(w, err)
		c.showSignIn(w, req, statusFor(err), signInForm{ReturnTo: req.PostForm.Get("return_to"), Name: credentials.Name, Fault: c.failure(err)})
		return
	}
	http.Redirect(w, req, c.back(req.PostForm.Get("return_to")), http.StatusSeeOther) //nolint:gosec // back takes paths of this console only
}

// signOut ends the session.
func (c *Console) signOut(w http.ResponseWriter, req *http.Request) {
	if err := c.api.SignOut(w, req); err != nil {
		c.problem(w, req, statusFor(err), err)
		return
	}
	http.Redirect(w, req, c.link("/sign-in"), http.StatusSeeOther)
}
