package console

import (
	"bytes"
	"html/template"
	"net/http"
	"net/url"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
)

// incidentOf is the operation of which the console makes a file.
const incidentOf = "jobs incident"

// incidentPage is the incident of a job as one file: it loads nothing and leads nowhere, since it
// is read where belfry is not.
type incidentPage struct {
	Title       string
	Environment string
	Style       template.CSS
	Charts      charts
	Audience    area
	Told        *told
	Clock       string // of its times
}

// incidentFile answers with the incident of a job as one file.
func (v *visit) incidentFile(o admin.Operation, in any, values url.Values) {
	out, err := v.ask.Run(v.req.Context(), o, in)
	if err != nil {
		v.problem(statusFor(err), err)
		return
	}
	r, is := out.(admin.Incident)
	if !is {
		panic("jobs incident tells no incident")
	}
	away := *v.Console
	away.operations = nil
	elsewhere := *v
	elsewhere.Console = &away
	page := incidentPage{
		Title: "Incident of job " + printer.Int(r.Job.ID) + ", " + r.Job.Title, Environment: v.called.Name, Clock: v.clock(),
		Style:  template.CSS(v.assets["console.css"].content), //nolint:gosec // it is of this program
		Charts: charts{Walk: away.walkOverTime(r.Runs, r.AsOf)}, Audience: areaOf(r.Job.Audience), Told: elsewhere.tell(o, in, out),
	}
	if counts := r.Job.Rows(); counts != nil {
		page.Charts.Outcomes, page.Charts.Delivery = outcomes(*counts), away.deliveryOverTime(*counts)
	}
	var b bytes.Buffer
	if err := v.pages["incident"].Execute(&b, page); err != nil {
		panic(err) // the API's handler logs it
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.Header().Set("Content-Disposition", `attachment; filename="`+fileName(o, values)+`.html"`)
	v.w.WriteHeader(http.StatusOK)
	_, _ = v.w.Write(b.Bytes())
}
