package recipients

import "github.com/belfryhq/belfry/internal/db"

// Statement returns a statement of the package, for tests that explain it.
func Statement(name string) string { return db.QueriesByName(queries)[name] }

// ForgetTries is the number of attempts that one step deletes.
const ForgetTries = forgetTries
