package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// A page for operators, behind the service's own users.
func ExampleNew() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store})
	if err != nil {
		panic(err)
	}
	page, err := dashboard.New(dashboard.Config{
		Outboxes: map[string]*outbox.Outbox{"orders": ob},
		Access: httptx.Access{Authorize: func(r *http.Request) (string, httptx.Role) {
			user, password, _ := r.BasicAuth() // a browser sends them after a 401, which is yours to answer
			if password != "secret" {
				return "", 0
			}
			return user, httptx.ReadPayloads | httptx.Operate
		}},
	})
	if err != nil {
		panic(err)
	}
	defer page.EndStreams() // or server.RegisterOnShutdown(page.EndStreams)
	mux := http.NewServeMux()
	mux.Handle("/outbox/", http.StripPrefix("/outbox", page))

	request := httptest.NewRequest("GET", "/outbox/orders/", nil)
	request.SetBasicAuth("ada", "secret")
	recorder := httptest.NewRecorder()
	mux.ServeHTTP(recorder, request)
	fmt.Println(recorder.Code)
	// Output:
	// 200
}
