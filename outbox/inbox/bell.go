package inbox

import (
	_ "embed" // bell.js
	"net/http"
)

// bell is the script of the element belfry-bell: a bell with the count of unread notifications and their list.
//
//go:embed bell.js
var bell []byte

// serveBell answers GET /v1/bell.js, without a token. Pages of every origin may load a script.
func serveBell(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_, _ = w.Write(bell)
}
