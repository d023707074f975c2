// Package console serves belfry's web pages for operators: the jobs in progress, their state, and the
// controls that stop them, on a desktop or a phone.
//
// # Pages
//
// Designed pages are listed in routes.go, in the order of the navigation. Each has a handler, which queries
// operations ([handler.query]) and uses their typed results; a view struct; a template pages/NAME.html; and tests.
// This package runs operations and makes links. Other packages arrange the results: views (Delivery, Person,
// Activity, and the senders, errors and health of the overview), agenda (Schedule), draft (the form of a notification)
// and settings. Package parts has the links, inputs and filters that pages share, package words the words for
// statuses, times, rates and counts, and package draw the drawings.
//
// Each other operation has a generated page at its path in the API: lanes pause is /lanes/default/pause. It
// consists of the operation's parameters and of the cells of its result ([text.Doc]). A new operation gets
// its page without code here, and an entry at /operations. A designed page replaces the generated page at
// its path.
//
// A list is also available as CSV (csv.go). /jump searches by id, name or title. The report of a job (?tab=report)
// prints without navigation and buttons. A command in a result of a generated page, such as
// `belfry lanes resume default`, is a link to the page of that operation with the same parameters, "resume lane
// default".
//
// # A request
//
//	browser ──► api.Handler: cross-site? ──► page ──► input ──► api.Handler.Do ──► typed result ──► HTML
//
// A page authenticates its request once (api.Handler.Caller), builds the input of an operation from
// the form, and runs the operation by api.Handler.Do, as the HTTP routes do. Do enforces roles, masks,
// read-only mode, limits, idempotency keys and deadlines. This package itself checks only that the caller has
// confirmed the question of an act, and has typed its number if there is one.
//
// The page of an operation that stops something, such as /halt or /jobs/17/stop, is authenticated and, for a caller
// who may run it, read on the connections that are reserved for stops, so that other requests do not delay it.
//
// # Charts
//
// Drawings are SVG in the templates, with geometry in their attributes and colors in the style sheet (see
// package draw). Each has a text alternative, and a table or a legend with the numbers.
//
// # An act
//
// A GET of an act renders its form and, if the operation has a plan (dry_run), the plan's counts. A POST
// runs it. Three values bind the act to the page: the token of the plan (plan), the version of the object
// (if_version), and an idempotency key, so that a form that is sent twice runs once. A question to
// confirm is shown with the number to type, if any. An act on all jobs that match a filter
// (matching.go) has the ids of the jobs that matched when its form was made. An act that stops something is bound
// to no plan, so that no change of the number of jobs prevents it: the response has the counts.
//
// A small form on a designed page posts to the same act (inplace.go). It names its page and its place there. After
// the act the browser is redirected to the page, which shows at this place, from a cookie for one page, what
// happened. After a fault the response is the page, with the fault and the typed values at the form.
//
// On the page of a job, stop, resume, retry, correct and recall are dialogs (jobact.go). Each is a page, such as
// /jobs/17/stop, with the effect of the act in numbers; the script shows its content in a dialog, and the
// content of the response after it. Stop is bound to no plan, because a job in motion changes while its operator
// reads; the stream updates its numbers instead. An approval and a test message open their generated pages in the
// same dialog.
//
// # A notification
//
// The form of a notification (compose.go) is reviewed before it is enqueued. The button of the review is bound
// to the reviewed values, by their digest, and to the number of channels (confirm_count), which the caller
// types if it is above a thousand. The script asks for the count while the form is filled in.
//
// # Live
//
// /live is the stream of the operation jobs watch, rendered for a browser. An event contains the cells of
// jobs that changed, by name, and the script replaces the cells with these names (data-cell), the bars
// (data-bar) with their legends, and hides what only a moving job has (data-while). It also contains control
// events: a page lists the events that concern it in its layout (aboutOf), and announces them. After an
// interruption the script reads the page again. The tabs of a browser with the same time zone share one
// stream, and all streams of the process share one poll (jobs.Broadcaster).
//
// A page without an event for five seconds shows the time of the last one. The script retries a
// rejected stream, but after the end of the session only when the caller may have signed in again. An
// open page does not extend the session.
//
// # Times
//
// Instants have an offset. A reader can choose a time zone (a cookie): pages show instants in it, and a
// time without a zone in a form is in it. The form shows the time again with its offset, so that its
// meaning does not depend on the cookie.
//
// # Invariants
//
//  1. Without a valid session a page redirects to the sign-in page, and a form does nothing.
//  2. A GET changes nothing.
//  3. User input is text: html/template escapes it, no page has an inline script or style, and the
//     policy (Content-Security-Policy) forbids them.
//  4. Scripts and styles are in the binary; nothing is loaded from other hosts. The first load of a
//     page is smaller than 100 kB.
package console
