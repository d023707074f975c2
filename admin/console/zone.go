package console

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
)

// zoneCookie is the cookie with the chosen time zone.
const zoneCookie = "belfry_time_zone"

// zoneLifetime is the lifetime of zoneCookie.
const zoneLifetime = 365 * 24 * time.Hour

// zoneOf returns the chosen zone. It is nil without a choice, or if the zone does not exist.
func zoneOf(req *http.Request) *time.Location {
	cookie, err := req.Cookie(zoneCookie)
	if err != nil {
		return nil
	}
	zone, err := zoneNamed(cookie.Value)
	if err != nil {
		return nil
	}
	return zone
}

// zoneNamed returns a zone by its name. The name "" is the server's zone, nil.
func zoneNamed(name string) (*time.Location, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // none was chosen
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf(
			"time zone: %q is not known; allowed values: UTC, a name as Asia/Seoul or Europe/Berlin, or nothing for the server's", name)
	}
	return zone, nil
}

// setZone stores the chosen zone in a cookie and redirects back.
func (h *handler) setZone() {
	if err := h.req.ParseForm(); err != nil {
		h.problem(http.StatusBadRequest, err)
		return
	}
	zone, err := zoneNamed(strings.TrimSpace(h.req.PostForm.Get("zone")))
	if err != nil {
		h.problem(http.StatusUnprocessableEntity, err)
		return
	}
	cookie := &http.Cookie{ //nolint:gosec // Secure behind TLS; it holds the name of a time zone
		Name: zoneCookie, Path: h.link("/"), HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: h.req.TLS != nil, MaxAge: -1,
	}
	if zone != nil {
		cookie.Value, cookie.MaxAge = zone.String(), int(zoneLifetime/time.Second)
	}
	http.SetCookie(h.w, cookie)
	http.Redirect(h.w, h.req, h.back(h.req.PostForm.Get("return_to")), http.StatusSeeOther)
}

// clock returns the name of the zone of displayed times.
func (c *Console) clock() string {
	if c.zone == nil {
		return "the server's zone, " + time.Now().Format("-07:00")
	}
	return c.zone.String()
}

// withoutZone matches a time without a zone, as date inputs and people write it.
var withoutZone = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2})?$`)

// zoned adds the reader's zone to a time without one.
func (c *Console) zoned(words string) (string, error) {
	if !withoutZone.MatchString(words) {
		return words, nil
	}
	i, err := operation.ParseInstant(words, cmp.Or(c.zone, time.Local))
	if err != nil {
		return "", err
	}
	return text.Times{Zone: c.zone}.Clock(i.At(time.Time{})), nil
}
