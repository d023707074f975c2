// Package client runs operations for the console through the API of the same process, with the
// identity of the page's request.
//
//	input ──► request ──► api.Handler ──► result, next page
//	                          │           problem ──► error
//	                          └── items ──► function (a stream)
package client
