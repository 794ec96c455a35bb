use super::*;

#[test]
fn services_are_named_in_four_forms() {
    for host in ["db", "db.shop", "db.shop.svc", "db.shop.svc.cluster.local"] {
        assert_eq!(service_name(host, "shop"), Some(("db", "shop")), "{host}");
    }
    assert_eq!(service_name("db.pay.svc", "shop"), Some(("db", "pay")));
    for host in ["db.shop.example", "db.shop.svc.example.com", "db.shop.svc.", "a.b.c.svc"] {
        assert_eq!(service_name(host, "shop"), None, "{host}");
    }
}
