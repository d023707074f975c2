package console

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
)

// zoneCookie has the time zone that somebody has chosen.
const zoneCookie = "belfry_time_zone"

// zoneFor is how long a browser keeps it.
const zoneFor = 365 * 24 * time.Hour

// zoneOf is the zone that who asks has chosen; nil: none, or one that there is not.
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

// zoneNamed is a zone by its name; nil: the server's, which has the name "".
func zoneNamed(name string) (*time.Location, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // none was chosen
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("time zone: %q is not known; allowed values: UTC, a name as Asia/Seoul or Europe/Berlin, or nothing for the server's", name)
	}
	return zone, nil
}

// chooseZone keeps a zone in a cookie, and leads back.
func (v *visit) chooseZone() {
	if err := v.req.ParseForm(); err != nil {
		v.problem(http.StatusBadRequest, err)
		return
	}
	zone, err := zoneNamed(strings.TrimSpace(v.req.PostForm.Get("zone")))
	if err != nil {
		v.problem(http.StatusUnprocessableEntity, err)
		return
	}
	cookie := &http.Cookie{Name: zoneCookie, Path: v.link("/"), HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: v.req.TLS != nil, MaxAge: -1} //nolint:gosec // Secure behind TLS; it holds the name of a time zone
	if zone != nil {
		cookie.Value, cookie.MaxAge = zone.String(), int(zoneFor/time.Second)
	}
	http.SetCookie(v.w, cookie)
	http.Redirect(v.w, v.req, v.back(v.req.PostForm.Get("return_to")), http.StatusSeeOther)
}

// clock says in which zone times are.
func (c *Console) clock() string {
	if c.zone == nil {
		return "the server's zone, " + time.Now().Format("-07:00")
	}
	return c.zone.String()
}

// offset is that of the zone that times are in at a moment, in seconds east.
func (c *Console) offset(at time.Time) int {
	zone := time.Local
	if c.zone != nil {
		zone = c.zone
	}
	_, seconds := at.In(zone).Zone()
	return seconds
}

// inZone is an instant as a text has it, in the zone of whoever asks.
func (c *Console) inZone(instant string) string {
	i, err := operation.ParseInstant(instant, time.UTC)
	if err != nil || c.zone == nil {
		return instant
	}
	return text.Times{Zone: c.zone}.Clock(i.At(time.Time{}))
}

// withoutZone is how a form, or a person, says a time without a zone.
var withoutZone = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2})?$`)

// zoned is what was said of a moment, with the zone that was meant: a form shows it so again.
func (c *Console) zoned(words string) (string, error) {
	if !withoutZone.MatchString(words) {
		return words, nil
	}
	zone := time.Local
	if c.zone != nil {
		zone = c.zone
	}
	i, err := operation.ParseInstant(words, zone)
	if err != nil {
		return "", err
	}
	return text.Times{Zone: zone}.Clock(i.At(time.Time{})), nil
}
