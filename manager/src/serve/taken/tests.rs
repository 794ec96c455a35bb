use super::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn who_takes_nothing_or_a_little_now_and_then_is_given_up_in_time() {
    for every in [None, Some(Duration::from_secs(1))] {
        let (ours, mut theirs) = duplex(8);
        let mut ours = Taken::within(LIMIT, ours);
        let began = Instant::now();
        let reading = async {
            while let Some(every) = every {
                sleep(every).await;
                theirs.read_u8().await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let written = tokio::select! {
            biased;
            written = ours.write_all(&[0; 64]) => written,
            () = reading => unreachable!(),
        };
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut, "{every:?}");
        assert!(began.elapsed() >= LIMIT && began.elapsed() < LIMIT * 2, "{every:?}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn each_answer_has_the_whole_time_and_silence_between_them_costs_none() {
    let (ours, mut theirs) = duplex(8);
    let mut ours = Taken::within(LIMIT, ours);
    for _ in 0..3 {
        let reading = async {
            sleep(LIMIT.saturating_sub(Duration::from_millis(1))).await;
            theirs.read_exact(&mut [0; 64]).await.unwrap();
        };
        let writing = async {
            ours.write_all(&[0; 64]).await.unwrap();
            ours.flush().await.unwrap();
        };
        tokio::join!(writing, reading);
        sleep(LIMIT * 2).await;
    }
}
