package outbox

import "reflect"

// PoolOf is the *sql.DB behind a handle that embeds one, such as *sqlx.DB; any
// other handle is its own pool. Adapters use it so that a transaction begun on
// either is one of the same source.
func PoolOf(db any) any {
	v := reflect.ValueOf(db)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return db
	}
	field, ok := v.Elem().Type().FieldByName("DB")
	if !ok || !field.Anonymous || len(field.Index) != 1 {
		return db
	}
	if pool := v.Elem().Field(field.Index[0]); pool.Kind() == reflect.Pointer && !pool.IsNil() {
		return pool.Interface()
	}
	return db
}
