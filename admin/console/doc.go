// Package console is belfry's pages for people: what runs, how far it is, and the way to stop just
// that, in a browser, on a telephone as well.
//
// # What it shows
//
// It shows operations of package admin, and nothing of its own. Every operation has a page, at the
// path that it has in the API (jobs show is /jobs/17, lanes pause is /lanes/default/pause), made of
// its parameters and of what its text tells: fields, tables and remarks ([text.Parts]). One that
// is new has its page as soon as it stands in the list. Two pages have a form of their own because
// they are looked at the most: what is under way, at /, and one job.
//
// A list is CSV as well, by the same operation (csv.go). /jump leads to what a person names. The page of
// a job prints without navigation and buttons.
//
// What the text says to do next, `belfry lanes resume default`, is a link to the page of that
// operation with those parameters.
//
// # A request
//
//	browser ──► api.Handler: cross-site? ──► page ──► input ──► api.Handler.Do ──► typed result ──► HTML
//
// A page authenticates its request once (api.Handler.Caller), builds the input of an operation from
// the form, and runs the operation by api.Handler.Do, which the HTTP routes call too. Roles, masks,
// read-only mode, limits, idempotency keys and deadlines are there and nowhere in this package.
//
// # Pictures
//
// Drawings are SVG of the templates, with geometry in their attributes and all else in the style
// text. Each has a text alternative and a table. The map of a radius (map.go) has its places from
// package cities; what is drawn of rows and runs (charts.go) is what jobs show and jobs runs tell.
// Rates are drawn by uPlot (assets/uplot.min.js, MIT) from the events of /live, on the page of a job
// that is under way alone.
//
// # An act
//
// A GET of an act shows its form and, where the operation can say beforehand what it would do
// (dry_run), that plan in numbers. A POST does it; what it does is bound to what was shown, by the
// token of the plan (plan), by the version of the object (if_version), and by a key
// of the form: sent twice, it is done once. What a person has to agree to first is shown with the
// number to type, if there is one. An act on all jobs that pass a filter is on those that passed it
// when its form was shown (matching.go): the form has their ids.
//
// # A notification
//
// The form of enqueue is previewed first: its first button shows the preview of the operation, with samples
// as a telephone shows them (notice.go). The second is bound to the previewed values, by their digest, and to
// the number of channels (confirm_count), which a person types if it is above a thousand.
//
// # Live
//
// /live is one stream of events for a browser, of two operations: jobs watch and events watch; and of
// what senders do, which all streams of the process look at together every three seconds. An
// event has the cells that changed, by name, as texts that are ready to be shown; the page puts them
// where they belong, and nothing else moves. Or it has acts: a page says in its frame of what there is
// news on it (about), and announces what concerns it over itself. After a break pages are read again.
// All tabs of a browser share one stream, and all streams of the process share their looks.
// A page that has heard nothing for five seconds says since when; a stream that is refused is asked
// for again, but after the end of the session only when somebody may have signed in. A page that is left open is no use
// of its session, which ends as it would without.
//
// # Times
//
// Texts have instants with their offset. Who has chosen a time zone (a cookie) has each of them shown
// in it, wherever it stands, and a time without a zone in a form is of it; the form shows it again
// with its offset, so that what was understood does not depend on a choice any more.
//
// # Invariants
//
//  1. A page without a good session shows the way to sign in and nothing else.
//  2. A GET changes nothing.
//  3. What others have written is text: it is escaped by html/template, no page has a script or a
//     style of its own, and the policy (Content-Security-Policy) lets none run.
//  4. Nothing is loaded from elsewhere: scripts and styles are in the binary. A first look at a page
//     loads less than 100 kB.
package console
