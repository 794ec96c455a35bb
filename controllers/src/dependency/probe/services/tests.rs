use super::*;

#[test]
fn a_service_has_four_forms_of_its_name() {
    for host in ["db", "db.shop", "db.shop.svc", "db.shop.svc.cluster.local"] {
        assert_eq!(service_name(host, "shop"), Some(("db", "shop")), "{host}");
    }
    assert_eq!(service_name("db.pay.svc", "shop"), Some(("db", "pay")));
    for host in ["db.shop.example", "db.shop.svc.example.com", "db.shop.svc.", "a.b.c.svc"] {
        assert_eq!(service_name(host, "shop"), None, "{host}");
    }
}
