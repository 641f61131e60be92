package echomw_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/outbox"
)

// beginning records how much of a body is left when a transaction begins.
type beginning struct {
	outbox.Transactor
	body *strings.Reader
	left int
}

func (b *beginning) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	b.left = b.body.Len()
	return b.Transactor.Begin(ctx, opts)
}

// failsOnce fails, and is at its end then.
type failsOnce struct{ err error }

func (f *failsOnce) Read([]byte) (int, error) {
	err := f.err
	f.err = io.EOF
	return 0, err
}

// The middleware waits for a slow client without a transaction, and the handler
// reads the body as it was sent.
func TestTheBodyIsReadBeforeTheTransactionBegins(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		readBody int64
		left     int
		broken   error
	}{
		"nothing by default":                   {0, 10, nil},
		"the beginning":                        {4, 6, nil},
		"just all":                             {10, 0, nil},
		"all":                                  {100, 0, nil},
		"a body that fails":                    {100, 0, errTest},
		"one that fails later than it is read": {4, 6, errTest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApp(t)
			transactor := &beginning{Transactor: a.transactor, body: strings.NewReader("0123456789")}
			a.transactor = transactor
			a.configured(echomw.TransactionConfig{ReadBody: tc.readBody})
			a.POST("/", a.writing(func(c echo.Context) error {
				read, err := io.ReadAll(c.Request().Body)
				require.Equal(t, "0123456789", string(read))
				require.Equal(t, tc.broken, err)
				return errors.Join(c.Request().Body.Close(), c.NoContent(http.StatusCreated))
			}))
			body := io.Reader(transactor.body)
			if tc.broken != nil {
				body = io.MultiReader(body, &failsOnce{err: tc.broken})
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
			recorder := httptest.NewRecorder()
			a.ServeHTTP(recorder, request)
			require.Equal(t, 201, recorder.Code)
			require.Equal(t, tc.left, transactor.left)
			a.want(1, "commit")
		})
	}
}

func TestARequestWithoutABodyHasNoneToRead(t *testing.T) {
	t.Parallel()
	a := newApp(t).configured(echomw.TransactionConfig{ReadBody: 10})
	a.POST("/", a.writing(func(c echo.Context) error {
		require.Equal(t, http.NoBody, c.Request().Body)
		return c.NoContent(http.StatusCreated)
	}))
	require.Equal(t, 201, a.post("/").StatusCode)
	a.want(1, "commit")
}
